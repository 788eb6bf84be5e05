-- Dead letters, for people. $1 to $9 are what chooses them (recovery/letters.py); a letter belongs to no saga.

-- name: groups
-- The youngest letters that fit are looked at, at most $10; one group is one cause.
WITH chosen AS (
    SELECT l.n, l.scope, l.topic, l.stage, l.code, l.message, l.status, l.recoverable, l.first_failed_at, l.last_failed_at,
           coalesce(l.cause, '') AS cause, coalesce(l.cause_name, '') AS name
    FROM milepost.dead_letter AS l
    WHERE (cardinality($1::text[]) = 0 OR l.status = ANY ($1))
      AND ($2::text IS NULL OR l.topic = $2)
      AND ($3::text IS NULL OR l.code = $3)
      AND (cardinality($4::bytea[]) = 0 OR l.key = ANY ($4))
      AND ($5::text IS NULL OR l.scope = $5 OR $5 = 'relay' AND l.stage = 'RELAY')
      AND ($6::timestamptz IS NULL OR l.last_failed_at >= $6)
      AND ($7::interval IS NULL OR l.last_failed_at >= milepost.clock() - $7)
      AND ($8::text IS NULL OR l.cause_name = $8)
      AND ($9::text[] IS NULL OR l.tenant = ANY ($9))
    ORDER BY l.n DESC
    LIMIT $10
)
SELECT name, scope, topic, min(stage) AS stage, code, cause, count(*) AS amount,
       count(*) FILTER (WHERE status = 'RETRY_PENDING') AS asked, bool_and(recoverable) AS recoverable,
       min(n) AS first, max(n) AS last, min(first_failed_at) AS first_at, max(last_failed_at) AS last_at,
       (array_agg(message ORDER BY n DESC))[1] AS message, milepost.clock() AS now,
       (SELECT count(*) FROM chosen) AS looked_at
FROM chosen
GROUP BY scope, topic, code, name, cause
ORDER BY count(*) DESC, max(last_failed_at) DESC
LIMIT $11;

-- name: letters
-- The oldest first, after number $10.
SELECT l.n, l.id, l.tenant, l.scope, l.event_id, l.topic, l.partition, l."offset", l.seq, l.key, l.stage, l.code, l.message,
       l.attempts, l.first_failed_at, l.last_failed_at, l.recoverable, l.status, l.asked_at, l.asked_by, l.resolved_at,
       l.resolved_by, l.held_key IS NOT NULL AS holds, octet_length(l.value) AS bytes,
       coalesce(l.cause_name, '') AS cause, milepost.clock() AS now
FROM milepost.dead_letter AS l
WHERE (cardinality($1::text[]) = 0 OR l.status = ANY ($1))
  AND ($2::text IS NULL OR l.topic = $2)
  AND ($3::text IS NULL OR l.code = $3)
  AND (cardinality($4::bytea[]) = 0 OR l.key = ANY ($4))
  AND ($5::text IS NULL OR l.scope = $5 OR $5 = 'relay' AND l.stage = 'RELAY')
  AND ($6::timestamptz IS NULL OR l.last_failed_at >= $6)
  AND ($7::interval IS NULL OR l.last_failed_at >= milepost.clock() - $7)
  AND ($8::text IS NULL OR l.cause_name = $8)
  AND ($9::text[] IS NULL OR l.tenant = ANY ($9))
  AND l.n > $10
ORDER BY l.n
LIMIT $11;

-- name: letter
SELECT l.*, l.held_key IS NOT NULL AS holds, octet_length(l.value) AS bytes,
       coalesce(l.cause_name, '') AS cause, milepost.clock() AS now,
       (SELECT e.n FROM milepost.dead_letter AS e WHERE e.id = l.edit_of) AS edit_of_n,
       (SELECT e.n FROM milepost.dead_letter AS e WHERE e.id = l.edited_as) AS edited_as_n,
       (SELECT i.outcome FROM milepost.inbox AS i
        WHERE i.consumer = substr(l.scope, 10) AND i.event_id = l.event_id) AS inbox
FROM milepost.dead_letter AS l
WHERE l.n = $1 AND ($2::text[] IS NULL OR l.tenant = ANY ($2));

-- name: key_order
-- The letters of a held key that are not done, in the order in which they are worked off.
SELECT l.n, l.code, l.status, l.last_failed_at
FROM milepost.dead_letter AS l
WHERE l.scope = $1 AND l.topic = $2 AND l.held_key = $3 AND l.status IN ('OPEN', 'RETRY_PENDING')
  AND ($5::text[] IS NULL OR l.tenant = ANY ($5))
ORDER BY coalesce(l.turn, l.n)
LIMIT $4;

-- name: key_order_of_relay
SELECT l.n, l.code, l.status, l.last_failed_at
FROM milepost.dead_letter AS l
WHERE l.scope = $1 AND l.topic = $2 AND milepost.hold_key(l.key) = $3 AND l.status IN ('OPEN', 'RETRY_PENDING')
  AND ($5::text[] IS NULL OR l.tenant = ANY ($5))
ORDER BY l.seq
LIMIT $4;

-- name: failures
SELECT attempts, at, code, message FROM milepost.letter_failure WHERE letter_id = $1 ORDER BY attempts DESC LIMIT 100;

-- name: audits
SELECT a.id, a.at, a.actor, a.act, a.reason, a.before::text AS before, a.after::text AS after
FROM milepost.audit AS a
WHERE a.evidence ->> 'letter' = ANY ($1::text[]) AND a.evidence ->> 'letter' IS NOT NULL AND a.at >= $2
ORDER BY a.at DESC, a.id DESC
LIMIT 50;
