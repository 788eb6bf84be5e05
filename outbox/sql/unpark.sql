-- What a person asks about letters of the relay (outbox/unpark.py).

-- name: lock_letter
SELECT id, n, tenant, topic, code, message, status, recoverable
FROM milepost.dead_letter WHERE id = $1 AND stage = 'RELAY' FOR UPDATE;

-- The first letter of the same key, when it is not this one.
-- name: letter_before
SELECT first.n, first.code
FROM milepost.dead_letter AS letter
CROSS JOIN LATERAL (
    SELECT before.id, before.n, before.code FROM milepost.dead_letter AS before
    WHERE before.scope = 'relay:key' AND before.topic = letter.topic
      AND milepost.hold_key(before.key) = milepost.hold_key(letter.key)
      AND before.status IN ('OPEN', 'RETRY_PENDING') AND before.seq < letter.seq
    ORDER BY before.seq
    LIMIT 1
) AS first
WHERE letter.id = $1;

-- name: ask
UPDATE milepost.dead_letter SET status = 'RETRY_PENDING', asked_at = milepost.clock(), asked_by = $2
WHERE id = $1 AND status = 'OPEN';

-- name: ignore
UPDATE milepost.dead_letter SET status = 'IGNORED', resolved_at = milepost.clock(), resolved_by = $2
WHERE id = $1 AND status IN ('OPEN', 'RETRY_PENDING');

-- The key goes on with the letter that only waited for the one that was ignored.
-- name: go_on
UPDATE milepost.dead_letter SET status = 'RETRY_PENDING', asked_at = milepost.clock(), asked_by = $2
WHERE code = 'KEY_HELD' AND id = (
    SELECT next.id FROM milepost.dead_letter AS letter
    JOIN milepost.dead_letter AS next
        ON next.scope = 'relay:key' AND next.topic = letter.topic
           AND milepost.hold_key(next.key) = milepost.hold_key(letter.key)
           AND next.status IN ('OPEN', 'RETRY_PENDING')
    WHERE letter.id = $1
    ORDER BY next.seq
    LIMIT 1);

-- name: write_audit
INSERT INTO milepost.audit (id, tenant, actor, kind, act, reason, before, after, evidence)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, $8::jsonb, $9::jsonb);
