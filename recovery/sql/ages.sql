-- Ages of what waits. Each query is bounded: $1 is the most rows of a kind that are counted, the oldest first wherever an
-- index has them in that order. All return what, service, saga, amount, seconds, first, tenant and run, and `more`.

-- name: bounded
SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true);

-- name: steps
WITH found AS (
    SELECT CASE WHEN s.state = 'PENDING' THEN 'step_pending' ELSE 'undo_pending' END AS what, s.run_id, s.name, s.since,
           count(*) OVER () >= $1 AS more
    FROM (SELECT * FROM milepost.step WHERE state IN ('PENDING', 'COMPENSATION_PENDING') ORDER BY since LIMIT $1) AS s
    UNION ALL
    -- Each answer of a probe begins the state anew: since when nobody knows is when the try was in doubt first.
    SELECT 'step_unknown', s.run_id, s.name, least(s.since, s.doubt_at), count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.step WHERE state = 'UNKNOWN' ORDER BY since LIMIT $1) AS s
    UNION ALL
    SELECT 'step_retry', s.run_id, s.name, coalesce(s.first_at, s.since), count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.step WHERE state = 'RETRY_PENDING' ORDER BY since LIMIT $1) AS s
)
SELECT f.what, r.service, r.saga, count(*) AS amount,
       extract(epoch FROM (SELECT milepost.clock()) - min(f.since))::float8 AS seconds,
       (array_agg(r.saga || '/' || r.key || ' ' || f.name ORDER BY f.since))[1] AS first,
       (array_agg(r.tenant ORDER BY f.since))[1] AS tenant, (array_agg(r.id ORDER BY f.since))[1] AS run,
       bool_or(f.more) AS more
FROM found AS f
JOIN milepost.run AS r ON r.id = f.run_id
GROUP BY f.what, r.service, r.saga;

-- What a process holds: gone is one whose lease has ended; slow, a call that has taken more than a twentieth of its time.
-- name: held
WITH held AS (
    SELECT s.run_id, s.name, s.state, least(s.since, s.doubt_at) AS doubted,
           coalesce(s.started_at, s.since) AS began, s.wake_at, w.expires_at,
           count(*) OVER () >= $1 AS more
    FROM (SELECT * FROM milepost.step WHERE worker IS NOT NULL LIMIT $1) AS s
    LEFT JOIN milepost.worker AS w ON w.id = s.worker
), found AS (
    SELECT 'step_stale' AS what, run_id, name, coalesce(expires_at, began) AS since, more
    FROM held
    WHERE expires_at IS NULL OR expires_at <= (SELECT milepost.clock())
    UNION ALL
    SELECT 'step_unknown', run_id, name, doubted, more FROM held WHERE state = 'RECONCILING'
    UNION ALL
    SELECT 'step_running', run_id, name, began, more
    FROM held
    WHERE state <> 'RECONCILING' AND (SELECT milepost.clock()) - began > (wake_at - began) / 20
)
SELECT f.what, r.service, r.saga, count(*) AS amount,
       extract(epoch FROM (SELECT milepost.clock()) - min(f.since))::float8 AS seconds,
       (array_agg(r.saga || '/' || r.key || ' ' || f.name ORDER BY f.since))[1] AS first,
       (array_agg(r.tenant ORDER BY f.since))[1] AS tenant, (array_agg(r.id ORDER BY f.since))[1] AS run,
       bool_or(f.more) AS more
FROM found AS f
JOIN milepost.run AS r ON r.id = f.run_id
GROUP BY f.what, r.service, r.saga;

-- name: persons
WITH found AS (
    SELECT CASE WHEN (s.asked ->> 'open')::boolean THEN 'approval' WHEN s.state = 'COMPENSATION_FAILED' THEN 'undo_failed'
                ELSE 'step_person' END AS what, s.run_id, s.name, s.since, count(*) OVER () >= $1 AS more
    FROM (SELECT * FROM milepost.step WHERE state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED') ORDER BY since LIMIT $1) AS s
    UNION ALL
    SELECT 'approval', s.run_id, s.name, s.since, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.step WHERE kind = 'APPROVAL' AND state = 'WAITING' ORDER BY since LIMIT $1) AS s
)
SELECT f.what, r.service, r.saga, count(*) AS amount,
       extract(epoch FROM (SELECT milepost.clock()) - min(f.since))::float8 AS seconds,
       (array_agg(r.saga || '/' || r.key || ' ' || f.name ORDER BY f.since))[1] AS first,
       (array_agg(r.tenant ORDER BY f.since))[1] AS tenant, (array_agg(r.id ORDER BY f.since))[1] AS run,
       bool_or(f.more) AS more
FROM found AS f
JOIN milepost.run AS r ON r.id = f.run_id
GROUP BY f.what, r.service, r.saga;

-- name: of_runs
WITH found AS (
    SELECT 'due' AS what, s.run_id, s.wake_at AS since, s.name AS place, count(*) OVER () >= $1 AS more
    FROM (SELECT * FROM milepost.step WHERE wake_at < (SELECT milepost.clock()) - interval '1 second'
          ORDER BY wake_at LIMIT $1) AS s
    UNION ALL
    SELECT 'due', r.id, r.wake_at, 'run', count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.run WHERE wake_at < (SELECT milepost.clock()) - interval '1 second'
          ORDER BY wake_at LIMIT $1) AS r
    UNION ALL
    SELECT 'wait', w.run_id, w.since, w.step, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.wait WHERE state = 'OPEN' ORDER BY since LIMIT $1) AS w
    UNION ALL
    SELECT 'request', q.run_id, q.at, q.what, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.request WHERE state = 'OPEN' ORDER BY id LIMIT $1) AS q
    UNION ALL
    SELECT 'confirm', q.run_id, q.held_at, q.what, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.request WHERE state = 'HELD' ORDER BY held_at LIMIT $1) AS q
    UNION ALL
    SELECT 'resume_check', c.run_id, c.asked_at, 'look', count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.resume_check WHERE state = 'OPEN' LIMIT $1) AS c
    UNION ALL
    SELECT 'handover', h.run_id, h.since, h.step, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.handover ORDER BY run_id LIMIT $1) AS h
    UNION ALL
    SELECT 'resource_queue', l.run_id, l.since, 'waits for ' || l.name, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.resource_queue ORDER BY run_id LIMIT $1) AS l
)
SELECT f.what, r.service, r.saga, count(*) AS amount,
       extract(epoch FROM (SELECT milepost.clock()) - min(f.since))::float8 AS seconds,
       (array_agg(r.saga || '/' || r.key || ' ' || f.place ORDER BY f.since))[1] AS first,
       (array_agg(r.tenant ORDER BY f.since))[1] AS tenant, (array_agg(r.id ORDER BY f.since))[1] AS run,
       bool_or(f.more) AS more
FROM found AS f
JOIN milepost.run AS r ON r.id = f.run_id
GROUP BY f.what, r.service, r.saga;

-- What belongs to no run. Letters by consumer, the oldest of each topic first.
-- name: records
WITH RECURSIVE places AS (
    (SELECT scope, topic FROM milepost.dead_letter WHERE status IN ('OPEN', 'RETRY_PENDING')
     ORDER BY scope, topic LIMIT 1)
    UNION ALL
    SELECT next.scope, next.topic
    FROM places AS p
    CROSS JOIN LATERAL (
        SELECT l.scope, l.topic FROM milepost.dead_letter AS l
        WHERE l.status IN ('OPEN', 'RETRY_PENDING') AND (l.scope, l.topic) > (p.scope, p.topic)
        ORDER BY l.scope, l.topic LIMIT 1
    ) AS next
), found AS (
    SELECT CASE WHEN p.scope LIKE 'relay:%' THEN 'outbox_parked' ELSE 'dead_letter' END AS what,
           split_part(p.scope, ':', 2) AS place, l.first_failed_at AS since, l.tenant,
           'letter ' || l.n || ' of ' || p.scope || ', topic ' || p.topic AS name,
           count(*) OVER (PARTITION BY p.scope, p.topic) >= $1 AS more
    FROM places AS p
    CROSS JOIN LATERAL (
        SELECT d.first_failed_at, d.n, d.tenant FROM milepost.dead_letter AS d
        WHERE d.scope = p.scope AND d.topic = p.topic AND d.status IN ('OPEN', 'RETRY_PENDING')
        ORDER BY d.first_failed_at LIMIT $1
    ) AS l
    UNION ALL
    SELECT 'hold', '', h.since, '', h.scope || ', topic ' || h.topic, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.hold ORDER BY since LIMIT $1) AS h
    UNION ALL
    SELECT 'signal_unmatched', '', g.received_at, g.tenant, g.type || ' ' || g.key, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.signal WHERE matched_at IS NULL ORDER BY received_at LIMIT $1) AS g
    WHERE g.expires_at > (SELECT milepost.clock())
    UNION ALL
    SELECT 'proposal', p.service, p.at, p.tenant, p.act || ' ' || p.subject, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.proposal WHERE state = 'OPEN' LIMIT $1) AS p
    WHERE p.expires_at > (SELECT milepost.clock())
    UNION ALL
    SELECT 'bulk_held', '', b.at, '', b.act || ' of ' || b.total || ' by ' || b.by, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.bulk WHERE state = 'HELD' ORDER BY at LIMIT $1) AS b
    UNION ALL
    SELECT 'operation_unknown', o.service, coalesce(o.doubt_at, o.wake_at), o.tenant, o.kind || '/' || o.key,
           count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.operation WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT $1) AS o
    WHERE o.state = 'UNKNOWN' OR o.wake_at < (SELECT milepost.clock())
    UNION ALL
    SELECT 'webhook', h.service, h.wake_at, h.tenant, h.provider || '/' || h.event_id, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.webhook WHERE wake_at < (SELECT milepost.clock()) LIMIT $1) AS h
    UNION ALL
    SELECT 'webhook_failed', h.service, h.received_at, h.tenant, h.provider || '/' || h.event_id, count(*) OVER () >= $1
    FROM (SELECT * FROM milepost.webhook WHERE state = 'FAILED' ORDER BY received_at LIMIT $1) AS h
    UNION ALL
    SELECT 'worker', w.service, w.seen_at, '', w.name || ' (' || array_to_string(w.roles, ', ') || ')', false
    FROM milepost.worker AS w
    WHERE w.expires_at > (SELECT milepost.clock()) AND w.seen_at < (SELECT milepost.clock()) - interval '4 seconds'
    UNION ALL
    -- Half a minute after a kill others have its partitions; where there are none, it stays.
    SELECT 'consumer', r.service, r.seen_at, '', r.consumer || ', read by ' || r.name, false
    FROM milepost.reader AS r
    WHERE r.seen_at < (SELECT milepost.clock()) - interval '4 seconds'
      AND (r.seen_at > (SELECT milepost.clock()) - interval '30 seconds'
           OR NOT EXISTS (SELECT FROM milepost.reader AS o
                          WHERE o.consumer = r.consumer AND o.seen_at > (SELECT milepost.clock()) - interval '30 seconds'))
)
SELECT what, place AS service, '' AS saga, count(*) AS amount,
       extract(epoch FROM (SELECT milepost.clock()) - min(since))::float8 AS seconds,
       (array_agg(name ORDER BY since))[1] AS first, (array_agg(tenant ORDER BY since))[1] AS tenant,
       NULL::uuid AS run, bool_or(more) AS more
FROM found
GROUP BY what, place;

-- Of each state the oldest runs; most have succeeded, and those are not looked at.
-- name: live
SELECT r.service, r.saga, r.state, count(*) AS amount
FROM unnest($2::text[]) AS wanted(state)
CROSS JOIN LATERAL (
    SELECT t.service, t.saga, t.state FROM milepost.run AS t
    WHERE t.state = wanted.state AND t.state <> 'SUCCEEDED'
    ORDER BY t.id LIMIT $1
) AS r
GROUP BY r.service, r.saga, r.state;

-- name: workers
SELECT service, count(*) AS amount FROM milepost.worker
WHERE expires_at > (SELECT milepost.clock())
GROUP BY service;

-- What became of the runs that a person let go on in the last day. Ids of requests begin with their time.
-- name: resumed
SELECT r.service, r.saga,
       CASE WHEN r.state IN ('SUCCEEDED', 'PARTIALLY_SUCCEEDED', 'COMPENSATED') THEN 'well'
            WHEN r.state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED') THEN 'again'
            WHEN r.finished_at IS NULL THEN 'open' ELSE 'failed' END AS outcome, count(DISTINCT r.id) AS amount
FROM (SELECT run_id FROM milepost.request
      WHERE id > $2 AND state = 'ACCEPTED' AND what IN ('retry', 'skip', 'mark_succeeded', 'resume', 'approve')
      ORDER BY id DESC LIMIT $1) AS q
JOIN milepost.run AS r ON r.id = q.run_id
GROUP BY 1, 2, 3;

-- name: days_ahead
SELECT p.parent, coalesce(min(d.n) FILTER (WHERE i.inhrelid IS NULL), 31) - 1 AS days
FROM unnest(ARRAY['outbox', 'history', 'audit']) AS p(parent)
CROSS JOIN generate_series(0, 30) AS d(n)
CROSS JOIN LATERAL milepost.partition_of(p.parent, clock_timestamp() + make_interval(days => d.n)) AS named
LEFT JOIN pg_inherits AS i ON i.inhrelid = to_regclass(format('milepost.%I', named.name))
GROUP BY p.parent;

-- name: severities
SELECT service, saga, severity FROM milepost.workflow;

-- name: now
SELECT milepost.clock();
