-- Claims whose answer was lost (inbox/withdrawal.py). Id and fence together were chosen for one claim, whose caller never
-- learnt of it. It may have been marked lost meanwhile: its fence stays then.

-- name: withdraw
DELETE FROM milepost.operation
WHERE tenant = $1 AND kind = $2 AND key = $3 AND id = $4 AND fence = $5 AND state IN ('RUNNING', 'UNKNOWN')
RETURNING true;

-- name: give_back
-- The fence stays risen: whoever had the record before was told that its lease ended.
UPDATE milepost.operation
SET state = $6, wake_at = $7, doubt_at = $8, expires_at = $9, code = $10, message = $11, attempts = attempts - $12,
    updated_at = milepost.clock()
WHERE tenant = $1 AND kind = $2 AND key = $3 AND id = $4 AND fence = $5 AND state IN ('RUNNING', 'UNKNOWN')
RETURNING true;
