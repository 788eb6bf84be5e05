-- Carrying out what a person asked for: a letter goes to its handler once more. RETRY_PENDING is what is asked for, and
-- every change names the state that it comes from.

-- name: waiting
-- Scopes with a letter whose turn it is; a letter of a held key waits for the lower ones of that key.
SELECT DISTINCT l.scope
FROM milepost.dead_letter AS l
WHERE l.status = 'RETRY_PENDING' AND l.scope = ANY ($1::text[])
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS e
                  WHERE e.scope = l.scope AND e.topic = l.topic AND e.held_key = l.held_key
                    AND coalesce(e.turn, e.n) < coalesce(l.turn, l.n) AND e.status IN ('OPEN', 'RETRY_PENDING'));

-- name: lock_scope
-- One process at a time works off a consumer's letters, so that they stay in order whether or not keys are held.
SELECT pg_try_advisory_xact_lock(hashtextextended('milepost.redrive:' || $1, 0));

-- name: next_letter
SELECT l.id, l.n, l.tenant, l.event_id, l.topic, l.partition, l."offset", l.key, l.value, l.headers, l.sent_at, l.code,
       l.attempts, l.held_key, l.asked_by, coalesce(l.turn, l.n) AS turn
FROM milepost.dead_letter AS l
WHERE l.status = 'RETRY_PENDING' AND l.scope = $1
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS e
                  WHERE e.scope = l.scope AND e.topic = l.topic AND e.held_key = l.held_key
                    AND coalesce(e.turn, e.n) < coalesce(l.turn, l.n) AND e.status IN ('OPEN', 'RETRY_PENDING'))
ORDER BY l.n
LIMIT 1;

-- name: begin_try
UPDATE milepost.dead_letter SET tries = tries + 1 WHERE id = $1 AND status = 'RETRY_PENDING' RETURNING tries;

-- name: call_off
-- A try that was called off counts neither as a failure nor as a death.
UPDATE milepost.dead_letter SET tries = greatest(0, tries - 1) WHERE id = $1 AND status = 'RETRY_PENDING';

-- name: lock_letter
SELECT true
FROM milepost.dead_letter AS l
WHERE l.id = $1 AND l.status = 'RETRY_PENDING'
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS e
                  WHERE e.scope = l.scope AND e.topic = l.topic AND e.held_key = l.held_key
                    AND coalesce(e.turn, e.n) < coalesce(l.turn, l.n) AND e.status IN ('OPEN', 'RETRY_PENDING'))
FOR UPDATE OF l;

-- name: apply_mark
UPDATE milepost.inbox SET outcome = 'APPLIED', at = milepost.clock()
WHERE consumer = $1 AND event_id = $2 AND outcome = 'PARKED'
RETURNING true;

-- name: outcome
SELECT outcome FROM milepost.inbox WHERE consumer = $1 AND event_id = $2;

-- name: park_mark
UPDATE milepost.inbox SET outcome = 'PARKED' WHERE consumer = $1 AND event_id = $2 AND outcome = 'APPLIED';

-- name: resolve
UPDATE milepost.dead_letter
SET status = 'RESOLVED', resolved_at = milepost.clock(), resolved_by = asked_by
WHERE id = $1 AND status = 'RETRY_PENDING'
RETURNING true;

-- name: fail
-- How it failed before is kept beside it.
WITH before AS (
    SELECT id, attempts, last_failed_at, code, message
    FROM milepost.dead_letter
    WHERE id = $1 AND status = 'RETRY_PENDING'
    FOR UPDATE
), kept AS (
    INSERT INTO milepost.letter_failure (letter_id, attempts, at, code, message)
    SELECT id, attempts, last_failed_at, code, message FROM before
    ON CONFLICT DO NOTHING
)
UPDATE milepost.dead_letter AS l
SET status = 'OPEN', stage = $2, code = $3, message = $4, recoverable = $5, attempts = l.attempts + $6,
    last_failed_at = milepost.clock(), tries = 0
FROM before
WHERE l.id = before.id
RETURNING true;

-- name: hold_back
UPDATE milepost.dead_letter SET status = 'OPEN'
WHERE scope = $1 AND topic = $2 AND held_key = $3 AND coalesce(turn, n) > $4
  AND status = 'RETRY_PENDING' AND code = 'KEY_HELD';

-- name: oldest
SELECT count(*) AS amount, max(milepost.clock() - first_failed_at) AS oldest
FROM milepost.dead_letter
WHERE scope = ANY ($1::text[]) AND status IN ('OPEN', 'RETRY_PENDING');
