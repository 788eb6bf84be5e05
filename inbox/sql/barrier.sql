-- Operations of participants. An insert waits for whoever is at the same operation in another transaction; what that
-- one committed is read by the next statement, whose snapshot is newer.

-- name: begin
INSERT INTO milepost.barrier (consumer, tenant, run, step, direction, outcome, command, fingerprint)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING
RETURNING true;

-- name: find
SELECT outcome, fingerprint, reply_type, reply_key, reply_payload, reply_headers
FROM milepost.barrier
WHERE consumer = $1 AND tenant = $2 AND run = $3 AND step = $4 AND direction = $5;

-- name: finish
UPDATE milepost.barrier
SET outcome = $6, reply_type = $7, reply_key = $8, reply_payload = $9, reply_headers = $10
WHERE consumer = $1 AND tenant = $2 AND run = $3 AND step = $4 AND direction = $5 AND outcome = 'PENDING'
RETURNING true;

-- name: withdraw
DELETE FROM milepost.barrier
WHERE consumer = $1 AND tenant = $2 AND run = $3 AND step = $4 AND direction = $5 AND outcome = 'PENDING'
RETURNING true;
