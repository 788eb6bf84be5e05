-- What may have drifted. Each reads one page of a list that an index holds, the oldest first, and answers with a row at
-- least: page_n rows were looked at, page_at and page_id are the last one's place, where the next page begins; the rest is
-- what was found. $1 is the service, NULL for all; $2 the run, NULL for all; $3 how long something must have lasted; $4 and
-- $5 the place after which the page begins; $6 the most rows. Nothing is found that is due: somebody looks at it anyway.

-- Parameters differ from call to call, and a plan for all of them would not go by the index of any.
-- name: by_index
SET LOCAL plan_cache_mode = force_custom_plan;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL jit = off;

-- Rows that a worker holds whose lease has ended; all that are held are looked at, as many as run at once.
-- name: worker_lost
WITH page AS MATERIALIZED (
    SELECT s.run_id, s.name, s.iteration, s.kind, s.state, s.fence, s.generation, s.attempt, s.wake_at, s.undo_of, s.worker,
           s.queue, w.name AS process, coalesce(w.expires_at, s.started_at, s.since) AS at
    FROM milepost.step AS s
    LEFT JOIN milepost.worker AS w ON w.id = s.worker
    WHERE s.worker IS NOT NULL AND ($2::uuid IS NULL OR s.run_id = $2)
      AND (w.id IS NULL OR w.expires_at <= (SELECT milepost.clock()))
      AND coalesce(w.expires_at, s.started_at, s.since) <= (SELECT milepost.clock()) - $3::interval
      AND s.wake_at > (SELECT milepost.clock())
      AND $4::timestamptz IS NOT NULL AND $5::uuid IS NOT NULL
    LIMIT $6
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, NULL::timestamptz AS page_at, NULL::uuid AS page_id FROM page) AS e
LEFT JOIN (
    SELECT page.*, page.at AS since, r.tenant, r.service, r.saga, r.key, r.correlation_id
    FROM page
    JOIN milepost.run AS r ON r.id = page.run_id
    WHERE $1::text IS NULL OR r.service = $1
) AS found ON true;

-- Work and undo that were announced and that nobody has claimed. held: what live workers have under way of each queue and
-- priority; youngest is when the youngest run of these began, so that work which came later has been taken before.
-- name: not_told
WITH page AS MATERIALIZED (
    SELECT s.run_id, s.name, s.iteration, s.kind, s.state, s.fence, s.generation, s.nudges, s.since, s.wake_at, s.undo_of,
           s.queue, s.limited_until, s.kind = 'UNDO' AS undo
    FROM milepost.step AS s
    WHERE s.state IN ('PENDING', 'COMPENSATION_PENDING') AND s.since <= (SELECT milepost.clock()) - $3::interval
      AND (s.since, s.run_id) > ($4::timestamptz, $5::uuid) AND ($2::uuid IS NULL OR s.run_id = $2)
    ORDER BY s.since, s.run_id
    LIMIT $6
), held AS MATERIALIZED (
    SELECT r.service, h.queue, h.kind = 'UNDO' AS undo, r.priority, count(*) AS n, max(r.created_at) AS youngest
    FROM milepost.step AS h
    JOIN milepost.worker AS w ON w.id = h.worker AND w.expires_at > (SELECT milepost.clock())
    JOIN milepost.run AS r ON r.id = h.run_id
    WHERE h.worker IS NOT NULL AND EXISTS (SELECT FROM page)
    GROUP BY r.service, h.queue, h.kind = 'UNDO', r.priority
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, max(since) AS page_at,
             (array_agg(run_id ORDER BY since DESC, run_id DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT page.*, r.tenant, r.service, r.saga, r.key, r.correlation_id, coalesce(held.n, 0) AS under_way,
           coalesce(held.youngest > page.since, false) AS overtaken,
           coalesce(page.limited_until > (SELECT milepost.clock()), false) AS limited,
           EXISTS (SELECT FROM milepost.handover AS h
                   WHERE h.run_id = page.run_id AND h.kind IN ('work', 'compensation') AND h.step = page.name) AS handed_over,
           EXISTS (SELECT FROM milepost.worker AS w
                   WHERE w.service = r.service AND w.expires_at > (SELECT milepost.clock()) AND page.queue = ANY (w.queues)
                     AND CASE WHEN page.undo THEN 'compensator' ELSE 'worker' END = ANY (w.roles)
                     AND r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version = ANY (w.pins)) AS workers
    FROM page
    JOIN milepost.run AS r ON r.id = page.run_id
    LEFT JOIN held ON held.service = r.service AND held.queue = page.queue AND held.undo = page.undo
        AND held.priority = r.priority
    WHERE ($1::text IS NULL OR r.service = $1) AND page.wake_at > (SELECT milepost.clock())
) AS found ON true;

-- Events that were matched within the hour with a wait which still waits under the same generation.
-- name: signal_present
WITH page AS MATERIALIZED (
    (SELECT g.id, g.run_id, g.type, g.matched_at
     FROM milepost.signal AS g
     WHERE $2::uuid IS NULL AND g.matched_at IS NOT NULL AND g.matched_at <= (SELECT milepost.clock()) - $3::interval
       AND g.matched_at > (SELECT milepost.clock()) - interval '1 hour' AND (g.matched_at, g.id) > ($4::timestamptz, $5::uuid)
     ORDER BY g.matched_at, g.id
     LIMIT $6)
    UNION ALL
    SELECT g.id, w.run_id, g.type, g.matched_at
    FROM milepost.wait AS w
    JOIN milepost.signal AS g ON g.id = w.signal_id
    WHERE $2::uuid IS NOT NULL AND w.run_id = $2 AND w.state = 'MATCHED' AND g.matched_at IS NOT NULL
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, max(matched_at) AS page_at,
             (array_agg(id ORDER BY matched_at DESC, id DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT s.run_id, s.name, s.iteration, s.kind, s.state, s.fence, s.generation, s.wake_at, s.undo_of, page.type,
           page.matched_at AS since, page.id AS signal, r.tenant, r.service, r.saga, r.key, r.correlation_id
    FROM page
    JOIN milepost.wait AS w ON w.run_id = page.run_id AND w.signal_id = page.id AND w.state = 'MATCHED'
    JOIN milepost.step AS s ON s.run_id = w.run_id AND s.name = w.step AND s.iteration = w.iteration
    JOIN milepost.run AS r ON r.id = page.run_id
    WHERE s.kind = 'WAIT' AND s.state IN ('WAITING', 'UNKNOWN') AND s.generation = w.generation
      AND s.wake_at > (SELECT milepost.clock()) AND ($1::text IS NULL OR r.service = $1)
) AS found ON true;

-- Open waits, with an event that fits and was never matched, and whether their timeout is over.
-- name: waits
WITH page AS MATERIALIZED (
    SELECT w.run_id, w.step, w.iteration, w.generation, w.tenant, w.type, w.key, w.since
    FROM milepost.wait AS w
    WHERE w.state = 'OPEN' AND w.since <= (SELECT milepost.clock()) - $3::interval
      AND (w.since, w.run_id) > ($4::timestamptz, $5::uuid) AND ($2::uuid IS NULL OR w.run_id = $2)
    ORDER BY w.since, w.run_id
    LIMIT $6
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, max(since) AS page_at,
             (array_agg(run_id ORDER BY since DESC, run_id DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT s.run_id, s.name, s.iteration, s.kind, s.state, s.fence, s.generation, s.wake_at, s.undo_of, page.type,
           page.since, r.tenant, r.service, r.saga, r.key, r.correlation_id, signal.id AS signal,
           s.wake_at < (SELECT milepost.clock()) - interval '1 minute' AS overdue
    FROM page
    JOIN milepost.step AS s ON s.run_id = page.run_id AND s.name = page.step AND s.iteration = page.iteration
    JOIN milepost.run AS r ON r.id = page.run_id
    LEFT JOIN LATERAL (
        SELECT g.id
        FROM milepost.signal AS g
        WHERE g.tenant = page.tenant AND g.type = page.type AND g.key = page.key AND g.matched_at IS NULL
          AND g.expires_at > (SELECT milepost.clock()) AND g.received_at <= (SELECT milepost.clock()) - $3::interval
        ORDER BY g.received_at
        LIMIT 1
    ) AS signal ON true
    WHERE s.kind = 'WAIT' AND s.state IN ('WAITING', 'UNKNOWN', 'RECONCILING') AND s.generation = page.generation
      AND ($1::text IS NULL OR r.service = $1)
) AS found ON true;

-- name: unknown
WITH page AS MATERIALIZED (
    SELECT s.run_id, s.name, s.iteration, s.kind, s.state, s.fence, s.generation, s.attempt, s.since AS at, s.wake_at,
           s.undo_of, s.probes, s.code, s.queue, coalesce(s.doubt_at, s.since) AS since
    FROM milepost.step AS s
    WHERE s.state = 'UNKNOWN' AND (s.since, s.run_id) > ($4::timestamptz, $5::uuid) AND ($2::uuid IS NULL OR s.run_id = $2)
    ORDER BY s.since, s.run_id
    LIMIT $6
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, max(at) AS page_at,
             (array_agg(run_id ORDER BY at DESC, run_id DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT page.*, r.tenant, r.service, r.saga, r.key, r.correlation_id
    FROM page
    JOIN milepost.run AS r ON r.id = page.run_id
    WHERE ($1::text IS NULL OR r.service = $1) AND page.since <= (SELECT milepost.clock()) - $3::interval
      AND page.wake_at > (SELECT milepost.clock())
) AS found ON true;

-- Undos that have failed for good; what stands in front of a person is one list, which is looked through.
-- name: undo_failed
WITH page AS MATERIALIZED (
    SELECT s.run_id, s.name, s.iteration, s.kind, s.state, s.fence, s.generation, s.attempt, s.since, s.wake_at, s.undo_of,
           s.code, s.queue
    FROM milepost.step AS s
    WHERE s.state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED') AND s.since <= (SELECT milepost.clock()) - $3::interval
      AND (s.since, s.run_id) > ($4::timestamptz, $5::uuid) AND ($2::uuid IS NULL OR s.run_id = $2)
    ORDER BY s.since, s.run_id
    LIMIT $6
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, max(since) AS page_at,
             (array_agg(run_id ORDER BY since DESC, run_id DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT page.*, r.tenant, r.service, r.saga, r.key, r.correlation_id
    FROM page
    JOIN milepost.run AS r ON r.id = page.run_id
    WHERE page.state = 'COMPENSATION_FAILED' AND ($1::text IS NULL OR r.service = $1)
) AS found ON true;

-- Runs that are being stopped or undone and have no row that is live: what should have followed the last one did not.
-- name: undo_stopped
WITH page AS MATERIALIZED (
    SELECT r.id, r.state
    FROM (VALUES ('COMPENSATING'), ('CANCEL_REQUESTED')) AS stopping (state)
    CROSS JOIN LATERAL (
        SELECT i.id, i.state
        FROM milepost.run AS i
        WHERE i.state = stopping.state AND i.state <> 'SUCCEEDED' AND i.id > $5::uuid AND $4::timestamptz IS NOT NULL
          AND ($2::uuid IS NULL OR i.id = $2)
        ORDER BY i.id
        LIMIT $6
    ) AS r
    ORDER BY r.id
    LIMIT $6
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, '-infinity'::timestamptz AS page_at,
             (array_agg(id ORDER BY id DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT r.id AS run_id, r.state, r.version, r.updated_at AS since, r.wake_at, r.tenant, r.service, r.saga, r.key,
           r.correlation_id, r.cause
    FROM page
    JOIN milepost.run AS r ON r.id = page.id
    WHERE r.state = page.state AND r.updated_at <= (SELECT milepost.clock()) - $3::interval
      AND r.wake_at > (SELECT milepost.clock()) AND ($1::text IS NULL OR r.service = $1)
      AND NOT EXISTS (SELECT FROM milepost.step AS s WHERE s.run_id = r.id AND s.wake_at IS NOT NULL)
) AS found ON true;

-- Open letters that nobody has asked for, put together by tenant, owner, topic and code; those that only wait for an earlier one
-- of their key are not told of. $1 and $2 do not matter.
-- name: letters
WITH page AS MATERIALIZED (
    SELECT l.scope, l.topic, l.code, l.n, l.id, l.tenant, l.stage, l.attempts, l.recoverable, l.first_failed_at
    FROM milepost.dead_letter AS l
    WHERE l.status = 'OPEN' AND l.first_failed_at <= (SELECT milepost.clock()) - $3::interval
      AND (l.first_failed_at, l.id) > ($4::timestamptz, $5::uuid) AND ($1::text IS NULL OR $1 <> '')
      AND ($2::uuid IS NULL OR l.event_id = $2)
    ORDER BY l.first_failed_at, l.id
    LIMIT $6
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, max(first_failed_at) AS page_at,
             (array_agg(id ORDER BY first_failed_at DESC, id DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT DISTINCT ON (tenant, scope, topic, code) scope, topic, code, n, id::text AS letter, tenant, stage, attempts,
           recoverable, first_failed_at AS since, count(*) OVER (PARTITION BY tenant, scope, topic, code) AS amount
    FROM page
    WHERE code <> 'KEY_HELD'
    ORDER BY tenant, scope, topic, code, n
) AS found ON true;

-- Keys of consumers that are held, put together by consumer and topic, apart from those whose letters are gone.
-- name: holds
WITH page AS MATERIALIZED (
    SELECT h.scope, h.topic, h.key, h.since, h.reason,
           EXISTS (SELECT FROM milepost.dead_letter AS l
                   WHERE l.scope = h.scope AND l.topic = h.topic AND l.held_key = h.key AND l.held_key IS NOT NULL
                     AND l.status IN ('OPEN', 'RETRY_PENDING')) AS letters
    FROM milepost.hold AS h
    WHERE h.since <= (SELECT milepost.clock()) - $3::interval AND h.since > $4::timestamptz AND $5::uuid IS NOT NULL
      AND ($1::text IS NULL OR $1 <> '') AND $2::uuid IS NULL AND h.scope LIKE 'consumer:%'
    ORDER BY h.since
    LIMIT $6
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, max(since) AS page_at, $5::uuid AS page_id FROM page) AS e
LEFT JOIN (
    SELECT DISTINCT ON (scope, topic, grouped) scope, topic, encode(key, 'hex') AS key_hex, since, reason, letters,
           count(*) OVER (PARTITION BY scope, topic, grouped) AS amount
    FROM (SELECT page.*, CASE WHEN letters THEN '' ELSE encode(key, 'hex') END AS grouped FROM page) AS page
    ORDER BY scope, topic, grouped, since
) AS found ON true;

-- The oldest committed event that has not left: not seen by the last finished snapshot, nor acknowledged of the next. The
-- bound on xid is a value of its own, so that the index on it is used.
-- name: outbox
WITH position AS MATERIALIZED (
    SELECT p.previous, p.current, p.last_seq
    FROM milepost.outbox_position AS p
    ORDER BY p.epoch DESC, p.n DESC
    LIMIT 1
), waiting AS MATERIALIZED (
    SELECT o.id, o.topic, o.created_at
    FROM milepost.outbox AS o
    LEFT JOIN position AS at ON true
    WHERE o.xid >= coalesce((SELECT pg_snapshot_xmin(previous) FROM position), '0'::xid8)
      AND (at.previous IS NULL
           OR NOT pg_visible_in_snapshot(o.xid, at.previous)
           AND NOT (pg_visible_in_snapshot(o.xid, at.current) AND o.seq <= at.last_seq))
    ORDER BY o.xid
    LIMIT $1
)
SELECT count(*) AS amount, min(created_at) AS since, (array_agg(id ORDER BY created_at, id))[1]::text AS first,
       (array_agg(topic ORDER BY created_at, id))[1] AS topic, clock_timestamp() AS now,
       EXISTS (SELECT FROM milepost.outbox_lease AS l
               WHERE l.owner IS NOT NULL AND l.expires_at > (SELECT milepost.clock())) AS relay
FROM waiting;

-- Locks whose run has ended or is gone. $4 and $5 are tenant and name of the last one of the page before.
-- name: lock_left
WITH page AS MATERIALIZED (
    (SELECT h.tenant, h.name, h.run_id, h.since
     FROM milepost.resource AS h
     WHERE $2::uuid IS NULL AND (h.tenant, h.name) > ($4::text, $5::text)
     ORDER BY h.tenant, h.name
     LIMIT $6)
    UNION ALL
    SELECT h.tenant, h.name, h.run_id, h.since
    FROM milepost.run AS r
    JOIN milepost.resource AS h ON h.tenant = r.tenant AND h.name = r.resource AND h.run_id = r.id
    WHERE $2::uuid IS NOT NULL AND r.id = $2
)
SELECT e.*, found.*
FROM (SELECT count(*) AS page_n, (array_agg(tenant ORDER BY tenant DESC, name DESC))[1] AS page_at,
             (array_agg(name ORDER BY tenant DESC, name DESC))[1] AS page_id FROM page) AS e
LEFT JOIN (
    SELECT page.tenant, page.name AS lock, page.run_id, page.since, r.service, r.saga, r.key, r.state, r.correlation_id,
           (SELECT q.run_id FROM milepost.resource_queue AS q
            WHERE q.tenant = page.tenant AND q.name = page.name
            ORDER BY q.tenant, q.name, q.n LIMIT 1) AS next
    FROM page
    LEFT JOIN milepost.run AS r ON r.id = page.run_id
    WHERE (r.id IS NULL OR r.finished_at IS NOT NULL AND r.finished_at <= (SELECT milepost.clock()) - $3::interval)
      AND page.since <= (SELECT milepost.clock()) - $3::interval AND ($1::text IS NULL OR r.id IS NULL OR r.service = $1)
) AS found ON true;

-- What was decided before about these, each by drift, subject and version: a look into the index for each.
-- name: decided
SELECT c.drift, c.subject, c.observed, c.decision, c.at
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (drift, subject, observed)
JOIN milepost.reconciliation AS c
    ON c.drift = wanted.drift AND c.subject = wanted.subject AND c.observed = wanted.observed AND c.drift <> '';

-- name: now
SELECT milepost.clock();
