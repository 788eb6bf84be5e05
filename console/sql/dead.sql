-- Dead letters, for operators. n is a letter's number; scope is consumer:NAME, or relay:key and relay:topic.

-- name: letters
SELECT l.n, l.id, l.tenant, l.scope, l.event_id, l.topic, l.partition, l."offset", l.seq, l.key, l.stage, l.code, l.message,
       l.attempts, l.first_failed_at, l.last_failed_at, l.recoverable, l.status, l.asked_at, l.asked_by, l.resolved_at,
       l.resolved_by, octet_length(l.value) AS bytes, milepost.clock() AS now
FROM milepost.dead_letter AS l
WHERE (cardinality($1::text[]) = 0 OR l.status = ANY ($1))
  AND ($2::text IS NULL OR l.topic = $2)
  AND ($3::text IS NULL OR l.code = $3)
  AND (cardinality($4::bytea[]) = 0 OR l.key = ANY ($4))
  AND ($5::text IS NULL OR l.scope = $5 OR $5 = 'relay' AND l.stage = 'RELAY')
  AND ($6::timestamptz IS NULL OR l.last_failed_at >= $6)
  AND ($7::interval IS NULL OR l.last_failed_at >= milepost.clock() - $7)
  AND ($9::text IS NULL OR l.cause_name = $9)
ORDER BY l.n
LIMIT $8;

-- name: letter
SELECT l.*, milepost.clock() AS now,
       (SELECT e.n FROM milepost.dead_letter AS e WHERE e.id = l.edit_of) AS edit_of_n,
       (SELECT e.n FROM milepost.dead_letter AS e WHERE e.id = l.edited_as) AS edited_as_n,
       ARRAY(SELECT b.n FROM milepost.dead_letter AS b
             WHERE b.scope = l.scope AND b.topic = l.topic AND b.held_key = l.held_key
               AND coalesce(b.turn, b.n) > coalesce(l.turn, l.n) AND b.status IN ('OPEN', 'RETRY_PENDING')
             ORDER BY coalesce(b.turn, b.n) LIMIT 11) AS behind
FROM milepost.dead_letter AS l
WHERE l.n = $1;

-- name: failures
SELECT attempts, at, code, message FROM milepost.letter_failure WHERE letter_id = $1 ORDER BY attempts;

-- name: states
SELECT n, status, code, message, resolved_by FROM milepost.dead_letter WHERE n = ANY ($1::bigint[]);

-- name: groups
-- Letters of a consumer in a row with the same code and topic are one group: most often one cause.
WITH placed AS (
    SELECT l.n, l.scope, l.topic, l.code, l.message, l.first_failed_at, l.last_failed_at,
           row_number() OVER (PARTITION BY l.scope ORDER BY l.n)
           - row_number() OVER (PARTITION BY l.scope, l.topic, l.code ORDER BY l.n) AS island
    FROM milepost.dead_letter AS l
    WHERE (cardinality($1::text[]) = 0 OR l.status = ANY ($1))
      AND ($2::text IS NULL OR l.topic = $2)
      AND ($3::text IS NULL OR l.code = $3)
      AND (cardinality($4::bytea[]) = 0 OR l.key = ANY ($4))
      AND ($5::text IS NULL OR l.scope = $5 OR $5 = 'relay' AND l.stage = 'RELAY')
      AND ($6::timestamptz IS NULL OR l.last_failed_at >= $6)
      AND ($7::interval IS NULL OR l.last_failed_at >= milepost.clock() - $7)
      AND ($9::text IS NULL OR l.cause_name = $9)
)
SELECT scope, topic, code, count(*) AS amount, min(n) AS first, max(n) AS last, min(first_failed_at) AS since,
       (array_agg(message ORDER BY n DESC))[1] AS message, milepost.clock() AS now
FROM placed
GROUP BY scope, topic, code, island
ORDER BY count(*) DESC, min(n)
LIMIT $8;

-- name: stuck
-- Letters whose turn it is and that nobody has handled for a while.
SELECT l.scope, l.topic, count(*) AS amount, max(milepost.clock() - l.asked_at) AS oldest
FROM milepost.dead_letter AS l
WHERE l.status = 'RETRY_PENDING' AND l.stage <> 'RELAY' AND l.asked_at < milepost.clock() - $1::interval
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS e
                  WHERE e.scope = l.scope AND e.topic = l.topic AND e.held_key = l.held_key
                    AND coalesce(e.turn, e.n) < coalesce(l.turn, l.n) AND e.status IN ('OPEN', 'RETRY_PENDING'))
GROUP BY l.scope, l.topic
ORDER BY l.scope, l.topic;
