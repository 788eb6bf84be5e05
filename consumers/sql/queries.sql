-- Saga runs: loading, storing one decision, claiming by compare-and-set; leases; what is due.

-- As text: SQLAlchemy teaches its connections to decode jsonb, the pool's do not.
-- name: load_run
SELECT r.id, r.tenant, r.service, r.saga, r.key, r.definition, r.shape, r.policy, r.input_version, r.input::text AS input,
       r.state, r.code, r.cause, r.version,
       r.history_n, r.finish_n, r.wake_at, r.finished_at, r.correlation_id, r.traceparent,
       r.deadline_at, r.active_for, r.active_since, r.resource, r.priority, r.no_undo, r.watched,
       coalesce((SELECT h.run_id = r.id FROM milepost.resource AS h
                 WHERE r.resource IS NOT NULL AND h.tenant = r.tenant AND h.name = r.resource), false) AS holds,
       (SELECT q.since FROM milepost.resource_queue AS q
        WHERE r.resource IS NOT NULL AND q.run_id = r.id) AS queued_since,
       (SELECT CASE WHEN max(t.n) IS DISTINCT FROM milepost.timeline_now() THEN milepost.clock()
                    ELSE max(t.since) FILTER (WHERE t.since > r.created_at) END FROM milepost.timeline AS t) AS moved_at,
       milepost.clock() AS now,
       (SELECT jsonb_agg(to_jsonb(s) || jsonb_build_object('signal', matched.payload,
                                                           'signal_version', matched.version,
                                                           'signal_traceparent', matched.traceparent, 'child', known.child,
                                                           'fan', spread.fan)
                         ORDER BY s.n)
        FROM milepost.step AS s
        LEFT JOIN LATERAL (
            SELECT g.payload, g.version, g.traceparent
            FROM milepost.wait AS w
            JOIN milepost.signal AS g ON g.id = w.signal_id
            WHERE s.kind = 'WAIT' AND s.wake_at IS NOT NULL AND w.state = 'MATCHED'
              AND (w.generation = s.generation OR s.state = 'MANUAL_REQUIRED')
              AND w.run_id = s.run_id AND w.step = s.name AND w.iteration = s.iteration
            ORDER BY w.generation DESC
            LIMIT 1
        ) AS matched ON true
        LEFT JOIN LATERAL (
            SELECT jsonb_build_object('id', k.child_id, 'key', k.key, 'code', k.code, 'message', k.message,
                       'state', coalesce(k.state, CASE WHEN c.finished_at IS NOT NULL THEN c.state END)) AS child
            FROM milepost.child_run AS k
            LEFT JOIN milepost.run AS c ON c.id = k.child_id
            WHERE s.kind = 'CHILD' AND s.wake_at IS NOT NULL AND k.run_id = s.run_id AND k.step = s.name
              AND k.iteration = s.iteration AND k.attempt = s.attempt
        ) AS known ON true
        LEFT JOIN LATERAL (
            SELECT jsonb_build_object('attempt', f.attempt, 'total', f.total, 'next', f.next, 'started', f.started,
                       'succeeded', f.succeeded, 'failed', f.failed) AS fan
            FROM milepost.fanout AS f
            WHERE s.kind = 'EACH' AND s.wake_at IS NOT NULL AND f.run_id = s.run_id AND f.step = s.name
              AND f.iteration = s.iteration
        ) AS spread ON true
        WHERE s.run_id = r.id)::text AS steps
FROM milepost.run AS r
WHERE r.id = $1;

-- name: lock_run
SELECT 1 FROM milepost.run WHERE id = $1 FOR UPDATE;

-- One change of a run: nothing happens unless the version is the one that was decided on. A run that begins ($24) is
-- inserted as it was decided.
-- name: store_decision
WITH begun AS (
    INSERT INTO milepost.run (id, tenant, service, saga, key, definition, shape, policy, input, correlation_id, traceparent,
        deadline_at, resource, priority, input_version, watched, state, code, cause, history_n, finish_n, wake_at,
        finished_at, active_for, active_since, no_undo, version)
    SELECT $1, n.tenant, n.service, n.saga, n.key, n.definition, n.shape, n.policy, coalesce(n.input, 'null'),
           n.correlation_id, n.traceparent, n.deadline_at, n.resource, n.priority, n.input_version, n.watched, $3, $4,
           $5, $6, $7, $8, $9, $21, $22, $23, 1
    FROM jsonb_to_record($24::jsonb) AS n(tenant text, service text, saga text, key text, definition integer,
        shape text, policy text, input jsonb, correlation_id text, traceparent text, deadline_at timestamptz,
        resource text, priority text, input_version integer, watched boolean)
    WHERE $24::jsonb IS NOT NULL
    RETURNING id, tenant, saga, key, correlation_id
), moved AS (
    UPDATE milepost.run
    SET state = $3, code = $4, cause = $5, history_n = $6, finish_n = $7, wake_at = $8, finished_at = $9,
        active_for = $21, active_since = $22, no_undo = $23, version = version + 1, updated_at = milepost.clock()
    WHERE id = $1 AND version = $2
    RETURNING id, tenant, saga, key, correlation_id
), cas AS (
    SELECT * FROM begun UNION ALL SELECT * FROM moved
), steps AS (
    INSERT INTO milepost.step AS old (run_id, name, iteration, n, kind, state, undo_of, queue, attempt, fence,
        generation, worker, wake_at, doubt, doubt_at, result, code, message, finish_no, probes, nudges, since,
        first_at, started_at, finished_at, limited_until, spent, granted, asked)
    SELECT cas.id, s.name, s.iteration, s.n, s.kind, s.state, s.undo_of, s.queue, s.attempt, s.fence, s.generation,
           s.worker, s.wake_at, s.doubt, s.doubt_at, s.result, s.code, s.message, s.finish_no, s.probes, s.nudges,
           s.since, s.first_at, s.started_at, s.finished_at, s.limited_until,
           s.spent, s.granted, s.asked
    FROM cas, jsonb_to_recordset($10::jsonb) AS s(name text, iteration text, n integer, kind text, state text,
        undo_of text, queue text, attempt integer, fence bigint, generation bigint, worker uuid,
        wake_at timestamptz, doubt boolean, doubt_at timestamptz, result jsonb, code text, message text,
        finish_no integer, probes integer, nudges integer, since timestamptz, first_at timestamptz,
        started_at timestamptz, finished_at timestamptz, limited_until timestamptz, spent jsonb, granted jsonb, asked jsonb)
    ON CONFLICT (run_id, name, iteration) DO UPDATE
    SET state = excluded.state, queue = excluded.queue, attempt = excluded.attempt, fence = excluded.fence,
        generation = excluded.generation, worker = excluded.worker, wake_at = excluded.wake_at,
        doubt = excluded.doubt, doubt_at = excluded.doubt_at, result = excluded.result, code = excluded.code,
        message = excluded.message, finish_no = excluded.finish_no, probes = excluded.probes,
        nudges = excluded.nudges, since = excluded.since, first_at = excluded.first_at,
        started_at = excluded.started_at, finished_at = excluded.finished_at, limited_until = excluded.limited_until,
        spent = excluded.spent, granted = excluded.granted,
        asked = excluded.asked
), entries AS (
    INSERT INTO milepost.history (run_id, n, event, step, iteration, attempt, data)
    SELECT cas.id, h.n, h.event, h.step, h.iteration, h.attempt, h.data
    FROM cas, jsonb_to_recordset($11::jsonb) AS h(n integer, event text, step text, iteration text,
        attempt integer, data jsonb)
), settled AS (
    INSERT INTO milepost.reconciliation (id, tenant, run_id, step, iteration, before, evidence, decision, after, actor,
        reason, correlation_id)
    SELECT t.id, cas.tenant, cas.id, t.step, t.iteration, t.before, t.evidence, t.decision, t.after, 'system',
           t.reason, cas.correlation_id
    FROM cas, jsonb_to_recordset($12::jsonb) AS t(id uuid, step text, iteration text, before text, evidence jsonb,
        decision text, after text, reason text)
), audited AS (
    INSERT INTO milepost.audit (id, tenant, actor, kind, act, run_id, step, reason, before, after, evidence)
    SELECT t.id, cas.tenant, 'system', 'SYSTEM', 'reconcile', cas.id, t.step, t.reason,
           jsonb_build_object('state', t.before), jsonb_build_object('state', t.after),
           t.evidence || jsonb_strip_nulls(jsonb_build_object('iteration', nullif(t.iteration, '')))
    FROM cas, jsonb_to_recordset($12::jsonb) AS t(id uuid, step text, iteration text, before text, evidence jsonb,
        decision text, after text, reason text)
), outcome AS (
    UPDATE milepost.run_key AS k
    SET outcome = $3
    FROM cas
    WHERE $9::timestamptz IS NOT NULL AND k.tenant = cas.tenant AND k.saga = cas.saga AND k.key = cas.key
), sent AS (
    INSERT INTO milepost.outbox (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
    SELECT o.id, o.tenant, o.topic, o.aggregatetype, o.aggregateid, o.type, o.payload, o.headers::jsonb
    FROM cas, unnest($13::uuid[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bytea[],
        $20::text[]) AS o(id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
)
SELECT count(*) FROM cas;

-- Nothing is written in a transaction whose snapshot is older than the locks it takes. The time is that at which the key
-- was had, for another start of it may have been waited for.
-- name: take_run_key
WITH taken AS (
    INSERT INTO milepost.run_key (tenant, saga, key, run_id, input_hash)
    SELECT $1, $2, $3, $4, $5
    WHERE pg_catalog.current_setting('transaction_isolation') = 'read committed'
    ON CONFLICT (tenant, saga, key) DO NOTHING
    RETURNING milepost.clock() AS now
)
SELECT pg_catalog.current_setting('transaction_isolation') AS level, (SELECT now FROM taken) AS now;

-- name: find_run_key
SELECT k.run_id, k.input_hash, k.outcome, r.input::text AS input, r.definition, r.input_version
FROM milepost.run_key AS k
LEFT JOIN milepost.run AS r ON r.id = k.run_id
WHERE k.tenant = $1 AND k.saga = $2 AND k.key = $3;

-- Whether a run ($2) waits, directly or through others, for another one ($1).
-- name: waits_for
WITH RECURSIVE above AS (
    SELECT $1::uuid AS id
    UNION
    SELECT waiting.run_id
    FROM above
    JOIN LATERAL (
        SELECT k.run_id FROM milepost.child_run AS k WHERE k.child_id = above.id
        UNION ALL
        SELECT i.run_id FROM milepost.fanout_item AS i WHERE i.child_id = above.id
    ) AS waiting ON true
)
SELECT EXISTS (SELECT FROM above WHERE id = $2);

-- name: take_lease
INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, pins, expires_at, seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, milepost.clock() + $8::interval, milepost.clock())
ON CONFLICT (id) DO NOTHING;

-- A lease that has ended is not revived: the sweep may already have taken its steps.
-- Returns whether no other process of the service has a lease.
-- name: renew_lease
UPDATE milepost.worker AS own
SET expires_at = milepost.clock() + $2::interval, seen_at = milepost.clock()
WHERE id = $1 AND expires_at > milepost.clock()
RETURNING NOT EXISTS (
    SELECT FROM milepost.worker AS other
    WHERE other.service = own.service AND other.id <> own.id AND other.expires_at > milepost.clock()
);

-- name: end_lease
UPDATE milepost.worker SET expires_at = milepost.clock() WHERE id = $1 AND expires_at > milepost.clock();

-- name: forget_workers
DELETE FROM milepost.worker AS w
WHERE w.service = $1 AND w.expires_at < (SELECT milepost.clock()) - interval '1 day'
  AND NOT EXISTS (SELECT 1 FROM milepost.step AS s WHERE s.worker = w.id);

-- When a process was last given up: its lease ran out, or it gave it back.
-- name: lease_ended
SELECT max(expires_at) FROM milepost.worker WHERE service = $1 AND expires_at <= (SELECT milepost.clock());

-- name: stale_steps
SELECT s.run_id, s.name, s.iteration, s.fence, coalesce(w.expires_at, s.started_at, s.since) AS lease_ended_at
FROM milepost.step AS s
JOIN milepost.run AS r ON r.id = s.run_id
LEFT JOIN milepost.worker AS w ON w.id = s.worker
WHERE s.worker IS NOT NULL AND r.service = $1
  AND r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version = ANY ($3::text[])
  AND (w.id IS NULL OR w.expires_at <= (SELECT milepost.clock()))
ORDER BY s.run_id
LIMIT $2;

-- The cluster has a timeline that was not met before: a standby has taken over, or a backup was restored.
-- name: note_timeline
INSERT INTO milepost.timeline (n, since)
SELECT now.n, milepost.clock() FROM (SELECT milepost.timeline_now() AS n) AS now
WHERE NOT EXISTS (SELECT FROM milepost.timeline AS t WHERE t.n = now.n)
ON CONFLICT DO NOTHING
RETURNING n;

-- Rows become due and are pushed all the time, so that statistics lag behind; what finds them must not depend on these.
-- name: wake_by_index
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL jit = off;

-- A tick: what is due is pushed, and what was pushed gets its message, so that neither is without the other. $1 is the
-- service, $2 the most rows of each table, $3 how far they are pushed, $4 the topic, $5 the message's type. The message is
-- what outbox/model.py makes of a TimerMessage, which a test holds. Ids are one new id counted up (RFC 9562 section
-- 6.2, method 2); its second highest random bit is cleared, so that counting leaves the variant alone.
-- name: wake_due
WITH tick AS MATERIALIZED (
    SELECT clock.now, clock.now + $3::interval AS later, left(made.id, 19) AS id_begins,
           ('x' || translate(right(made.id, 17), '-', ''))::bit(64)::bigint & ~(1::bigint << 61) AS id_ends,
           jsonb_build_object(
               'ce_specversion', '1.0', 'ce_source', $1::text, 'ce_type', $5::text, 'ce_eventversion', '1',
               'content-type', 'application/json',
               'ce_time', replace(to_char(clock.now AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
                                  '.000000+', '+')) AS headers
    FROM (SELECT milepost.clock() AS now) AS clock, (SELECT milepost.uuid7()::text AS id) AS made
), due_steps AS (
    SELECT s.run_id, s.name, s.iteration, s.generation, r.tenant, r.correlation_id, r.traceparent
    FROM milepost.step AS s
    JOIN milepost.run AS r ON r.id = s.run_id
    WHERE s.wake_at <= (SELECT now FROM tick) AND r.service = $1
    ORDER BY s.wake_at
    LIMIT $2
    FOR UPDATE OF s SKIP LOCKED
), due_runs AS (
    SELECT r.id AS run_id, r.tenant, r.correlation_id, r.traceparent
    FROM milepost.run AS r
    WHERE r.wake_at <= (SELECT now FROM tick) AND r.service = $1
    ORDER BY r.wake_at
    LIMIT $2
    FOR UPDATE OF r SKIP LOCKED
), pushed_steps AS (
    UPDATE milepost.step AS s
    SET wake_at = (SELECT later FROM tick)
    FROM due_steps AS due
    WHERE s.run_id = due.run_id AND s.name = due.name AND s.iteration = due.iteration
    RETURNING due.run_id, due.name, due.iteration, due.generation, due.tenant, due.correlation_id, due.traceparent
), pushed_runs AS (
    UPDATE milepost.run AS r
    SET wake_at = (SELECT later FROM tick)
    FROM due_runs AS due
    WHERE r.id = due.run_id
    RETURNING due.run_id, due.tenant, due.correlation_id, due.traceparent
), message AS (
    SELECT (tick.id_begins || to_hex(tick.id_ends + row_number() OVER ()))::uuid AS id, tick.headers,
           pushed.run_id::text AS run, pushed.name, pushed.iteration, pushed.generation, pushed.tenant,
           pushed.correlation_id, pushed.traceparent
    FROM tick, (
        SELECT run_id, name, iteration, generation, tenant, correlation_id, traceparent FROM pushed_steps
        UNION ALL
        SELECT run_id, NULL, '', 0, tenant, correlation_id, traceparent FROM pushed_runs
    ) AS pushed
), sent AS (
    INSERT INTO milepost.outbox (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
    SELECT id, tenant, $4, $4, run, $5,
           convert_to('{"run":"' || run || '","step":' || coalesce(to_json(name)::text, 'null') || ',"iteration":'
                      || to_json(iteration)::text || ',"generation":' || generation || '}', 'UTF8'),
           headers || jsonb_strip_nulls(jsonb_object(
               ARRAY['ce_id', 'ce_tenant', 'ce_correlationid', 'traceparent'],
               ARRAY[id::text, nullif(tenant, ''), nullif(correlation_id, ''), nullif(traceparent, '')]))
    FROM message
    RETURNING true
)
SELECT count(*) FROM sent;
