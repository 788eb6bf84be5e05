-- Resource locks. Whoever passes a lock on, or gives it away, first takes an advisory lock of its name in a statement of
-- its own, so that the next statement's snapshot shows what the others committed. Starts never take it: they only insert,
-- and what they add is looked at by a message after their commit.

-- name: take
INSERT INTO milepost.resource (tenant, name, run_id)
VALUES ($1, $2, $3)
ON CONFLICT (tenant, name) DO NOTHING
RETURNING run_id;

-- What this transaction took, for a run that is over before it has begun.
-- name: untake
DELETE FROM milepost.resource WHERE tenant = $1 AND name = $2 AND run_id = $3;

-- name: find_holder
SELECT h.run_id, h.since, r.saga, r.key, r.state
FROM milepost.resource AS h
LEFT JOIN milepost.run AS r ON r.id = h.run_id
WHERE h.tenant = $1 AND h.name = $2;

-- name: forget_key
DELETE FROM milepost.run_key WHERE tenant = $1 AND saga = $2 AND key = $3 AND run_id = $4;

-- name: enter
INSERT INTO milepost.resource_queue (tenant, name, run_id) VALUES ($1, $2, $3);

-- name: lock_name
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(chr(31), 'milepost.resource', $1::text, $2::text), 0));

-- A start that is under way may have inserted the row and not committed: it is not waited for.
-- name: hardly_wait
SELECT set_config('lock_timeout', '50ms', true);

-- name: wait_again
SET LOCAL lock_timeout TO DEFAULT;

-- What became final gives its lock to the first of the queue, or back; or it leaves the queue.
-- name: leave
WITH left_queue AS (
    DELETE FROM milepost.resource_queue WHERE run_id = $3
), following AS (
    SELECT q.run_id
    FROM milepost.resource_queue AS q
    WHERE q.tenant = $1 AND q.name = $2 AND q.run_id <> $3
    ORDER BY q.tenant, q.name, q.n
    LIMIT 1
), passed AS (
    UPDATE milepost.resource AS h
    SET run_id = following.run_id, since = milepost.clock()
    FROM following
    WHERE h.tenant = $1 AND h.name = $2 AND h.run_id = $3
    RETURNING h.run_id
), given_back AS (
    DELETE FROM milepost.resource AS h
    WHERE h.tenant = $1 AND h.name = $2 AND h.run_id = $3 AND NOT EXISTS (SELECT FROM following)
), taken AS (
    DELETE FROM milepost.resource_queue AS q USING passed WHERE q.run_id = passed.run_id
)
SELECT r.id, r.tenant, r.service, r.correlation_id, r.traceparent
FROM passed
JOIN milepost.run AS r ON r.id = passed.run_id;

-- If nobody has the lock, the first of the queue gets it; a holder that is over is nobody: a process of an older version
-- does not pass a lock on.
-- name: give
WITH following AS (
    SELECT q.run_id
    FROM milepost.resource_queue AS q
    WHERE q.tenant = $1 AND q.name = $2
    ORDER BY q.tenant, q.name, q.n
    LIMIT 1
), given AS (
    INSERT INTO milepost.resource (tenant, name, run_id)
    SELECT $1, $2, following.run_id
    FROM following
    ON CONFLICT (tenant, name) DO UPDATE SET run_id = excluded.run_id, since = milepost.clock()
    WHERE NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = resource.run_id AND r.wake_at IS NOT NULL)
    RETURNING run_id
), taken AS (
    DELETE FROM milepost.resource_queue AS q USING given WHERE q.run_id = given.run_id
)
SELECT r.id, r.tenant, r.service, r.correlation_id, r.traceparent
FROM given
JOIN milepost.run AS r ON r.id = given.run_id;
