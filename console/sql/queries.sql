-- What operators read: runs, the outbox, and the facts that `doctor` judges. Nothing here writes.

-- name: server
SELECT current_setting('server_version') AS version,
       current_setting('synchronous_standby_names') <> '' AS synchronous,
       pg_is_in_recovery() AS standby,
       to_regclass('milepost.migration') IS NOT NULL AS has_schema;

-- name: schema_version
SELECT coalesce(max(number), 0) FROM milepost.migration;

-- name: list_runs
SELECT r.id, r.tenant, r.service, r.saga, r.key, r.state, r.code, r.cause, r.correlation_id, r.created_at,
       r.finished_at, s.name AS step, s.state AS step_state,
       coalesce(s.since, r.finished_at, r.updated_at) AS since, milepost.clock() AS now
FROM milepost.run AS r
LEFT JOIN LATERAL (
    SELECT l.name, l.state,
           CASE WHEN l.state IN ('UNKNOWN', 'RECONCILING') THEN least(l.since, l.doubt_at) ELSE l.since END AS since
    FROM milepost.step AS l
    WHERE l.run_id = r.id AND l.wake_at IS NOT NULL
    ORDER BY l.n DESC
    LIMIT 1
) AS s ON true
WHERE (cardinality($1::text[]) = 0 OR r.state = ANY ($1))
  AND ($2::text IS NULL OR r.saga = $2)
  AND ($3::text IS NULL OR r.key = $3)
  AND ($4::text IS NULL OR r.correlation_id = $4)
  AND ($5::timestamptz IS NULL OR r.created_at >= $5)
ORDER BY r.id DESC
LIMIT $6;

-- Jumps from one saga's first key to the next saga's along the primary key, tenant by tenant, instead of reading all.
-- name: sagas
WITH RECURSIVE place (tenant, saga) AS (
    (SELECT k.tenant, k.saga FROM milepost.run_key AS k ORDER BY k.tenant, k.saga LIMIT 1)
    UNION ALL
    SELECT following.tenant, following.saga
    FROM place
    CROSS JOIN LATERAL (
        SELECT k.tenant, k.saga FROM milepost.run_key AS k
        WHERE (k.tenant, k.saga) > (place.tenant, place.saga)
        ORDER BY k.tenant, k.saga
        LIMIT 1
    ) AS following
)
SELECT DISTINCT named.saga FROM (SELECT saga FROM place LIMIT 1000) AS named ORDER BY named.saga LIMIT 20;

-- name: now
SELECT milepost.clock();

-- Without a tenant first, which the primary key answers at once.
-- name: find_key
SELECT k.run_id, k.tenant, k.outcome, k.created_at, r.id IS NOT NULL AS kept
FROM milepost.run_key AS k
LEFT JOIN milepost.run AS r ON r.id = k.run_id
WHERE k.tenant = '' AND k.saga = $1 AND k.key = $2;

-- name: find_key_of_tenants
SELECT k.run_id, k.tenant, k.outcome, k.created_at, r.id IS NOT NULL AS kept
FROM milepost.run_key AS k
LEFT JOIN milepost.run AS r ON r.id = k.run_id
WHERE k.saga = $1 AND k.key = $2
ORDER BY k.tenant
LIMIT 10;

-- name: find_ids
SELECT id, saga, key FROM milepost.run WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT 10;

-- name: load_run
SELECT id, tenant, service, saga, key, definition, state, code, cause, correlation_id, traceparent, created_at,
       updated_at, finished_at, wake_at, deadline_at,
       active_for + coalesce(milepost.clock() - active_since, '0') AS active_for, milepost.clock() AS now
FROM milepost.run
WHERE id = $1;

-- Only of a run that has a lock or waits for one.
-- name: load_lock
SELECT r.resource AS name, h.run_id IS NOT DISTINCT FROM r.id AS held, other.saga || '/' || other.key AS holder, h.since,
       (SELECT count(*) FROM milepost.resource_queue AS q
        WHERE q.tenant = r.tenant AND q.name = r.resource AND q.n < mine.n) AS ahead,
       (SELECT count(*) FROM milepost.resource_queue AS q
        WHERE q.tenant = r.tenant AND q.name = r.resource) AS waiting
FROM milepost.run AS r
LEFT JOIN milepost.resource AS h ON h.tenant = r.tenant AND h.name = r.resource
LEFT JOIN milepost.run AS other ON other.id = h.run_id
LEFT JOIN milepost.resource_queue AS mine ON mine.run_id = r.id
WHERE r.id = $1 AND (h.run_id = r.id OR mine.run_id IS NOT NULL);

-- Each answer of a probe begins the state anew: since when nobody knows is when the try was in doubt first.
-- name: load_steps
SELECT s.name, s.iteration, s.kind, s.state, s.undo_of, s.queue, s.attempt, s.probes, s.doubt, s.code, s.message,
       coalesce(w.name, s.worker::text) AS worker, s.wake_at, s.started_at, s.finished_at,
       CASE WHEN s.state IN ('UNKNOWN', 'RECONCILING') THEN least(s.since, s.doubt_at) ELSE s.since END AS since,
       s.probes > 0 OR EXISTS (
           SELECT 1 FROM milepost.reconciliation AS c WHERE c.run_id = s.run_id AND c.step = s.name
               AND c.iteration = s.iteration AND c.drift = ''
       ) AS probed,
       (SELECT jsonb_build_object('total', f.total, 'succeeded', f.succeeded, 'failed', f.failed, 'started', f.started)
        FROM milepost.fanout AS f
        WHERE f.run_id = s.run_id AND f.step = s.name AND f.iteration = s.iteration)::text AS items
FROM milepost.step AS s
LEFT JOIN milepost.worker AS w ON w.id = s.worker
WHERE s.run_id = $1
ORDER BY s.n;

-- name: load_history
SELECT n, at, event, step, iteration, attempt, data FROM milepost.history WHERE run_id = $1 ORDER BY n, at;

-- name: partitions_ahead
SELECT p.parent,
       coalesce(min(d.n) FILTER (WHERE i.inhrelid IS NULL), 31) - 1 AS days
FROM unnest(ARRAY['outbox', 'history', 'audit']) AS p(parent)
CROSS JOIN generate_series(0, 30) AS d(n)
CROSS JOIN LATERAL milepost.partition_of(p.parent, clock_timestamp() + make_interval(days => d.n)) AS named
LEFT JOIN pg_inherits AS i ON i.inhrelid = to_regclass(format('milepost.%I', named.name))
GROUP BY p.parent
ORDER BY p.parent;

-- name: live_workers
SELECT service, name, roles, queues, expires_at
FROM milepost.worker
WHERE expires_at > (SELECT milepost.clock())
ORDER BY service, name;

-- name: overdue
SELECT count(*) AS amount, max((SELECT milepost.clock()) - due.wake_at) AS oldest,
       (array_agg(due.saga || '/' || due.key ORDER BY due.wake_at))[1] AS first
FROM (
    SELECT s.wake_at, r.saga, r.key
    FROM milepost.step AS s
    JOIN milepost.run AS r ON r.id = s.run_id
    WHERE s.wake_at < (SELECT milepost.clock()) - $1::interval
    UNION ALL
    SELECT r.wake_at, r.saga, r.key
    FROM milepost.run AS r
    WHERE r.wake_at < (SELECT milepost.clock()) - $1::interval
) AS due;

-- How far consumers have come, and when each partition last moved.
-- name: consumer_positions
SELECT consumer, topic, partition, next_offset, (SELECT milepost.clock()) - at AS still
FROM milepost.consumer_position
ORDER BY consumer, topic, partition
LIMIT 10000;

-- name: live_runs
SELECT count(*) FROM milepost.run WHERE wake_at IS NOT NULL;

-- name: steps_in
SELECT s.state, count(*) AS amount, max(milepost.clock() - s.began) AS oldest,
       (array_agg(r.saga || '/' || r.key ORDER BY s.began))[1] AS first
FROM (SELECT s.*, CASE s.state WHEN 'UNKNOWN' THEN least(s.since, s.doubt_at) ELSE s.since END AS began FROM milepost.step AS s) AS s
JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.wake_at IS NOT NULL AND s.state = ANY ($1::text[])
GROUP BY s.state
ORDER BY s.state;

-- name: open_letters
SELECT scope, topic, count(*) AS amount, max(milepost.clock() - first_failed_at) AS oldest
FROM milepost.dead_letter
WHERE status IN ('OPEN', 'RETRY_PENDING') AND stage <> 'RELAY'
GROUP BY scope, topic
ORDER BY scope, topic;

-- name: unsent
SELECT topic, code, count(*) AS amount, max(milepost.clock() - first_failed_at) AS oldest
FROM milepost.dead_letter
WHERE status IN ('OPEN', 'RETRY_PENDING') AND stage = 'RELAY'
GROUP BY topic, code
ORDER BY topic, code;

-- A row has left when the last finished snapshot saw it, or when the one being sent saw it and it lies at or below
-- the last acknowledged place. The bound on xid is a value of its own, so that the index on it is used.
-- name: outbox_lag
WITH position AS MATERIALIZED (
    SELECT p.previous, p.current, p.last_seq
    FROM milepost.outbox_position AS p
    ORDER BY p.epoch DESC, p.n DESC
    LIMIT 1
)
SELECT count(o.id) AS amount, max(clock_timestamp() - o.created_at) AS oldest,
       (SELECT l.epoch FROM milepost.outbox_lease AS l WHERE l.epoch > 0 ORDER BY l.epoch DESC LIMIT 1) AS epoch,
       EXISTS (SELECT FROM milepost.outbox_lease AS l
               WHERE l.owner IS NOT NULL AND l.expires_at > milepost.clock()) AS leased
FROM milepost.outbox AS o
LEFT JOIN position AS at ON true
WHERE o.xid >= coalesce((SELECT pg_snapshot_xmin(previous) FROM position), '0'::xid8)
  AND (at.previous IS NULL
       OR NOT pg_visible_in_snapshot(o.xid, at.previous)
       AND NOT (pg_visible_in_snapshot(o.xid, at.current) AND o.seq <= at.last_seq));
