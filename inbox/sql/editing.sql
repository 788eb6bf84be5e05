-- A letter is edited: it is closed as it is, and a new one takes its turn. turn is the number of the letter whose place a
-- letter has; its own without one.

-- name: letter
SELECT l.*, coalesce(l.turn, l.n) AS place,
       (SELECT e.n FROM milepost.dead_letter AS e WHERE e.id = l.edited_as) AS next_n
FROM milepost.dead_letter AS l
WHERE l.n = $1
FOR UPDATE OF l;

-- name: is_held
SELECT EXISTS (SELECT FROM milepost.hold WHERE scope = $1 AND topic = $2 AND key = $3);

-- name: hold
INSERT INTO milepost.hold AS h (scope, topic, key, reason) VALUES ($1, $2, $3, $4)
ON CONFLICT (scope, topic, key) DO UPDATE SET since = h.since;

-- name: before
-- The first letter of a key that comes before a turn ($4; NULL for the last) and is not this one.
SELECT min(l.n)
FROM milepost.dead_letter AS l
WHERE l.scope = $1 AND l.topic = $2 AND l.held_key = $3 AND l.status IN ('OPEN', 'RETRY_PENDING') AND l.id <> $5
  AND ($4::bigint IS NULL OR coalesce(l.turn, l.n) < $4);

-- name: replace
UPDATE milepost.dead_letter
SET status = 'IGNORED', resolved_at = milepost.clock(), resolved_by = $2, edited_as = $3
WHERE id = $1;

-- name: insert
-- Age and place are the old letter's, so that an old failure stays an old one.
INSERT INTO milepost.dead_letter (id, edit_of, tenant, scope, event_id, topic, partition, "offset", key, value, headers,
                                  sent_at, stage, code, message, attempts, first_failed_at, last_failed_at, recoverable,
                                  status, held_key, turn, asked_by, asked_at)
SELECT $1, l.id, $3, l.scope, $4, l.topic, l.partition, l."offset", $5, $6, $7, l.sent_at, 'HANDLE', $8, $9, 0,
       l.first_failed_at, milepost.clock(), true, $10, $11, $12, $13::text,
       CASE WHEN $13 IS NOT NULL THEN milepost.clock() END
FROM milepost.dead_letter AS l
WHERE l.id = $2
RETURNING n;

-- name: park
-- What the inbox knows of the new event; it is applied by the redrive, once.
INSERT INTO milepost.inbox (consumer, event_id, tenant, fingerprint, outcome, topic, partition, "offset")
SELECT $1, $2, $3, $4, 'PARKED', l.topic, l.partition, l."offset" FROM milepost.dead_letter AS l WHERE l.id = $5;
