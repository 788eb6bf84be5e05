-- Signals and waits. Both sides first take the lock of (tenant, type, key) in a statement of its own, so that the next
-- statement's snapshot shows what the other side committed; a lock taken in the same statement would lose a match.

-- name: lock_keys
SELECT pg_advisory_xact_lock(keys.k)
FROM (SELECT DISTINCT hashtextextended(concat_ws(chr(31), 'milepost.signal', given.tenant, given.type, given.key), 0) AS k
      FROM unnest($1::text[], $2::text[], $3::text[]) AS given (tenant, type, key)
      ORDER BY k) AS keys;

-- name: lock_wait
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(chr(31), 'milepost.signal', tenant, type, key), 0))
FROM milepost.wait
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND generation = $4;

-- name: insert_signals
INSERT INTO milepost.signal (id, tenant, source, event_id, type, key, payload, traceparent, received_at, expires_at,
                             version)
SELECT given.id, given.tenant, given.source, given.event_id, given.type, given.key, given.payload::jsonb,
       given.traceparent, clock.now, clock.now + given.keep, given.version
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::interval[], $10::integer[])
         WITH ORDINALITY AS given (id, tenant, source, event_id, type, key, payload, traceparent, keep, version, n),
     (SELECT milepost.clock() AS now) AS clock
ORDER BY given.tenant, given.source, given.event_id, given.n
ON CONFLICT DO NOTHING
RETURNING id;

-- name: match_signals
-- The n-th new signal of a key goes to the n-th oldest wait; a broadcast wait takes the first. The waker is to look at
-- a matched step soon, in case its resume message is lost. A step row that somebody holds is left alone: a change of its
-- run may hold it and be waiting for the lock of this key, and it finds the match when it has that.
WITH fresh AS (
    SELECT s.id, s.tenant, s.type, s.key,
           row_number() OVER (PARTITION BY s.tenant, s.type, s.key ORDER BY given.n) AS n
    FROM unnest($1::uuid[]) WITH ORDINALITY AS given (id, n)
    JOIN milepost.signal AS s ON s.id = given.id
    WHERE s.matched_at IS NULL AND s.expires_at > (SELECT milepost.clock())
), open AS (
    SELECT w.run_id, w.step, w.iteration, w.generation, w.tenant, w.type, w.key, w.since,
           CASE WHEN w.broadcast THEN 1
                ELSE row_number() OVER (PARTITION BY w.tenant, w.type, w.key, w.broadcast
                                        ORDER BY w.since, w.run_id, w.step, w.iteration, w.generation)
           END AS n
    FROM (SELECT DISTINCT tenant, type, key FROM fresh) AS k
    JOIN milepost.wait AS w ON w.tenant = k.tenant AND w.type = k.type AND w.key = k.key AND w.state = 'OPEN'
), matched AS (
    UPDATE milepost.wait AS w
    SET state = 'MATCHED', signal_id = fresh.id
    FROM open
    JOIN fresh ON fresh.tenant = open.tenant AND fresh.type = open.type AND fresh.key = open.key AND fresh.n = open.n
    WHERE w.run_id = open.run_id AND w.step = open.step AND w.iteration = open.iteration
      AND w.generation = open.generation AND w.state = 'OPEN'
    RETURNING w.run_id, w.step, w.iteration, w.generation, w.signal_id, w.since
), used AS (
    UPDATE milepost.signal AS s
    SET run_id = first.run_id, matched_at = (SELECT milepost.clock())
    FROM (SELECT DISTINCT ON (signal_id) signal_id, run_id
          FROM matched ORDER BY signal_id, since, run_id) AS first
    WHERE s.id = first.signal_id
), late AS (
    SELECT s.run_id, s.name, s.iteration
    FROM matched
    JOIN milepost.step AS s
        ON s.run_id = matched.run_id AND s.name = matched.step AND s.iteration = matched.iteration
           AND s.generation = matched.generation
    WHERE s.wake_at > milepost.clock() + $2::interval
    FOR UPDATE OF s SKIP LOCKED
), nudged AS (
    UPDATE milepost.step AS s
    SET wake_at = milepost.clock() + $2::interval
    FROM late
    WHERE s.run_id = late.run_id AND s.name = late.name AND s.iteration = late.iteration
)
SELECT run_id, step, iteration, generation FROM matched ORDER BY since, run_id, step;

-- name: open_wait
WITH found AS (
    SELECT s.id
    FROM milepost.signal AS s
    WHERE s.tenant = $2 AND s.type = $6 AND s.key = $7 AND s.matched_at IS NULL
      AND s.expires_at > (SELECT milepost.clock())
    ORDER BY s.received_at, s.id
    LIMIT 1
), used AS (
    UPDATE milepost.signal AS s
    SET run_id = $1, matched_at = (SELECT milepost.clock())
    FROM found
    WHERE s.id = found.id
    RETURNING s.id
), nudged AS (
    -- The caller holds the run, so nobody else holds its steps for long.
    UPDATE milepost.step AS s
    SET wake_at = milepost.clock() + $9::interval
    FROM used
    WHERE s.run_id = $1 AND s.name = $3 AND s.iteration = $4 AND s.wake_at > milepost.clock() + $9::interval
)
INSERT INTO milepost.wait (run_id, tenant, step, iteration, generation, type, key, broadcast, state, signal_id)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, CASE WHEN used.id IS NULL THEN 'OPEN' ELSE 'MATCHED' END, used.id
FROM (SELECT (SELECT id FROM used) AS id) AS used
RETURNING signal_id IS NOT NULL;

-- name: close_wait
UPDATE milepost.wait
SET state = 'CLOSED'
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND generation = $4 AND state = 'OPEN'
RETURNING true;

-- name: find_signal
SELECT id FROM milepost.signal WHERE tenant = $1 AND source = $2 AND event_id = $3;
