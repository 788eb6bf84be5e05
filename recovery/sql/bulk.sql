-- Acts on many, chosen by a filter.

-- Steps, waits and undos that stand in front of a person ($1 'step'), open questions ('question'), or whole runs that an
-- act can change ('run', in one of the states $2), the oldest first.
-- name: choose
SELECT r.id AS run_id, r.tenant, r.saga, r.key, r.state, s.name AS step, coalesce(s.iteration, '') AS iteration, s.fence,
       coalesce(s.code, r.code, (SELECT c.code FROM milepost.step AS c
                                 WHERE c.run_id = r.id AND c.code IS NOT NULL AND c.wake_at IS NOT NULL
                                 ORDER BY c.n LIMIT 1)) AS code, (s.asked ->> 'generation')::bigint AS generation, s.asked ->> 'hash' AS hash,
       coalesce(w.severity, 'MEDIUM') AS severity, s.asked ->> 'risk' AS risk
FROM milepost.run AS r
LEFT JOIN milepost.step AS s
    ON s.run_id = r.id AND $1::text <> 'run'
       AND CASE $1::text WHEN 'question' THEN coalesce((s.asked ->> 'open')::boolean, false)
                                              AND s.state IN ('WAITING', 'MANUAL_REQUIRED')
                         ELSE s.state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED')
                              AND NOT coalesce((s.asked ->> 'open')::boolean, false) END
LEFT JOIN milepost.workflow AS w ON w.service = r.service AND w.saga = r.saga
WHERE r.wake_at IS NOT NULL
  AND ($1::text = 'run' OR s.name IS NOT NULL)
  AND (cardinality($2::text[]) = 0 OR r.state = ANY ($2))
  AND ($3::text IS NULL OR r.saga = $3)
  AND (cardinality($4::text[]) = 0 OR r.state = ANY ($4))
  AND ($5::text IS NULL OR coalesce(s.code, r.code) = $5
       OR $1::text = 'run' AND EXISTS (SELECT FROM milepost.step AS c
                                       WHERE c.run_id = r.id AND c.code = $5 AND c.wake_at IS NOT NULL))
  AND ($6::text IS NULL OR s.name = $6)
  AND ($7::timestamptz IS NULL OR r.created_at >= $7)
  AND ($8::interval IS NULL OR r.created_at >= milepost.clock() - $8)
  AND ($9::text[] IS NULL OR r.tenant = ANY ($9))
  AND ($10::text[] IS NULL OR r.saga = ANY ($10))
ORDER BY r.created_at, r.id, s.n
LIMIT $11;

-- name: letters
SELECT l.n, l.tenant, l.topic, l.code FROM milepost.dead_letter AS l WHERE l.n = ANY ($1::bigint[]) ORDER BY l.n;

-- name: begin
INSERT INTO milepost.bulk (id, act, chosen, arguments, by, kind, grants, reason, total, rate, state)
VALUES ($1, $2, $3::jsonb, $4::jsonb, $5, $6, $7::jsonb, $8, $9, $10, $11);

-- name: add
INSERT INTO milepost.bulk_item (bulk, n, tenant, saga, run_id, step, iteration, fence, generation, hash, letter, subject)
SELECT $1::uuid, i.*
FROM unnest($2::integer[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
            $10::text[], $11::bigint[], $12::text[]) AS i;

-- name: bulks
SELECT b.id, b.act, b.chosen::text AS chosen, b.arguments::text AS arguments, b.by, b.kind, b.reason, b.total, b.rate, b.state,
       b.at, b.ended_at, b.confirmed_by, b.confirm_reason,
       (SELECT jsonb_object_agg(c.word, c.amount)
        FROM (SELECT coalesce(i.outcome, i.state) AS word, count(*) AS amount
              FROM milepost.bulk_item AS i WHERE i.bulk = b.id GROUP BY 1) AS c)::text AS counts
FROM milepost.bulk AS b
WHERE ($1::uuid IS NULL OR b.id = $1)
  AND (NOT $2::boolean OR b.state IN ('HELD', 'RUNNING', 'PAUSED'))
  AND ($3::text[] IS NULL AND $4::text[] IS NULL
       OR NOT EXISTS (SELECT FROM milepost.bulk_item AS i
                      WHERE i.bulk = b.id AND ($3::text[] IS NOT NULL AND i.tenant <> ALL ($3)
                                               OR $4::text[] IS NOT NULL AND (i.saga IS NULL OR i.saga <> ALL ($4)))))
ORDER BY b.at DESC, b.id DESC
LIMIT $5;

-- name: items
SELECT n, tenant, saga, run_id, step, iteration, letter, subject, state, outcome, code, text, request, done_at
FROM milepost.bulk_item
WHERE bulk = $1 AND n > $2 AND ($3::text IS NULL OR coalesce(outcome, state) = $3)
ORDER BY n
LIMIT $4;

-- name: done_since
SELECT n, letter, subject, outcome, code, text FROM milepost.bulk_item
WHERE bulk = $1 AND state = 'DONE' AND NOT n = ANY ($2::integer[])
ORDER BY n;

-- The pace is by real time, which does not stand still. Whoever has the row carries one item out; nobody else begins one of this bulk meanwhile.
-- name: take
SELECT b.id, b.act, b.arguments::text AS arguments, b.chosen::text AS chosen, b.by, b.kind, b.grants::text AS grants, b.reason, b.confirmed_by,
       b.confirm_reason, i.n, i.tenant, i.saga, i.run_id, i.step, i.iteration, i.fence, i.generation, i.hash, i.letter
FROM milepost.bulk AS b
JOIN LATERAL (SELECT * FROM milepost.bulk_item AS w
              WHERE w.bulk = b.id AND w.state = 'WAITING' ORDER BY w.n LIMIT 1) AS i ON true
WHERE b.state = 'RUNNING' AND b.next_at <= clock_timestamp() AND ($1::uuid IS NULL OR b.id = $1)
ORDER BY b.next_at
LIMIT 1
FOR UPDATE OF b SKIP LOCKED;

-- A statement of its own, after the lock: whether it is still so.
-- name: still
SELECT b.state = 'RUNNING' AND i.state = 'WAITING'
FROM milepost.bulk AS b JOIN milepost.bulk_item AS i ON i.bulk = b.id AND i.n = $2
WHERE b.id = $1;

-- Whether a whole run is still in a state, and stands for a reason, that was chosen by: $2 and $3, as `choose` has them. What a
-- step is chosen by changes with its fence, which its request holds.
-- name: fits
SELECT (cardinality($2::text[]) = 0 OR r.state = ANY ($2))
       AND ($3::text IS NULL OR r.code = $3
            OR EXISTS (SELECT FROM milepost.step AS c
                       WHERE c.run_id = r.id AND c.code = $3 AND c.wake_at IS NOT NULL)) AS fits
FROM milepost.run AS r
WHERE r.id = $1
FOR UPDATE;

-- name: due
SELECT CASE WHEN min(b.next_at) IS NOT NULL  -- greatest() passes over NULL
            THEN greatest(extract(epoch FROM min(b.next_at) - clock_timestamp()), 0) END::float8
FROM milepost.bulk AS b
WHERE b.state = 'RUNNING' AND ($1::uuid IS NULL OR b.id = $1)
  AND EXISTS (SELECT FROM milepost.bulk_item AS i WHERE i.bulk = b.id AND i.state = 'WAITING');

-- name: hardly_wait
SET LOCAL lock_timeout = '2s';

-- name: asked
UPDATE milepost.bulk_item SET state = 'ASKED', request = $3 WHERE bulk = $1 AND n = $2 AND state = 'WAITING';

-- name: done
UPDATE milepost.bulk_item
SET state = 'DONE', outcome = $3, code = $4, text = $5, done_at = milepost.clock()
WHERE bulk = $1 AND n = $2 AND state = 'WAITING';

-- name: next
UPDATE milepost.bulk
SET next_at = clock_timestamp() + make_interval(secs => greatest($2::float8, 1.0 / rate))
WHERE id = $1;

-- What has become of items that were asked for.
-- name: settle_requests
UPDATE milepost.bulk_item AS i
SET state = 'DONE', outcome = q.state, done_at = milepost.clock(),
    text = CASE q.state WHEN 'HELD' THEN 'a second person has to confirm it' ELSE q.answer END
FROM milepost.request AS q
WHERE i.bulk = $1 AND i.state = 'ASKED' AND q.id = i.request AND q.state <> 'OPEN';

-- name: settle_letters
UPDATE milepost.bulk_item AS i
SET state = 'DONE', done_at = milepost.clock(), code = CASE WHEN l.status = 'OPEN' THEN l.code END,
    outcome = CASE WHEN l.status = 'RESOLVED' THEN 'RESOLVED' WHEN l.status = 'IGNORED' THEN 'IGNORED'
                   WHEN l.code = 'KEY_HELD' THEN 'BEHIND' ELSE 'FAILED_AGAIN' END,
    text = CASE WHEN l.status = 'RESOLVED' THEN '' WHEN l.status = 'IGNORED' THEN 'meanwhile by ' || l.resolved_by
                WHEN l.code = 'KEY_HELD' THEN 'an earlier letter of its key failed again, and it waits on'
                ELSE l.message END
FROM milepost.dead_letter AS l
WHERE i.bulk = $1 AND i.state = 'ASKED' AND l.n = i.letter AND l.status <> 'RETRY_PENDING';

-- name: unsettled
SELECT DISTINCT bulk FROM milepost.bulk_item WHERE state = 'ASKED' AND ($1::uuid IS NULL OR bulk = $1);

-- name: finish
UPDATE milepost.bulk AS b
SET state = 'DONE', ended_at = milepost.clock()
WHERE b.state = 'RUNNING' AND ($1::uuid IS NULL OR b.id = $1)
  AND NOT EXISTS (SELECT FROM milepost.bulk_item AS i WHERE i.bulk = b.id AND i.state <> 'DONE');

-- name: lock
SELECT state, by FROM milepost.bulk WHERE id = $1 FOR UPDATE;

-- name: control
UPDATE milepost.bulk
SET state = $2, next_at = CASE WHEN $2 = 'RUNNING' THEN clock_timestamp() ELSE next_at END,
    ended_at = CASE WHEN $2 = 'STOPPED' THEN milepost.clock() END,
    confirmed_by = coalesce($3, confirmed_by), confirm_reason = coalesce($4, confirm_reason)
WHERE id = $1;

-- name: give_up
UPDATE milepost.bulk_item
SET state = 'DONE', outcome = 'STOPPED', text = 'stopped before its turn', done_at = milepost.clock()
WHERE bulk = $1 AND state = 'WAITING';
