-- Changes of many runs in one transaction; each statement is that of queries.sql for one run, for many.

-- The plan must not depend on statistics, nor on how many runs a batch has.
-- name: many_by_index
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL jit = off;

-- The same for all statements of a connection, where it is known to be the same connection each time.
-- name: many_by_session
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan;
SET jit = off;

-- name: load_runs
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
WHERE r.id = ANY ($1::uuid[]);

-- name: now
SELECT milepost.clock();

-- In the order of the keys, so that two who start the same runs at once wait for each other one way round.
-- name: take_run_keys
INSERT INTO milepost.run_key (tenant, saga, key, run_id, input_hash)
SELECT $1, $2, k.key, k.run_id, k.input_hash
FROM unnest($3::text[], $4::uuid[], $5::bytea[]) AS k(key, run_id, input_hash)
ORDER BY k.key
ON CONFLICT (tenant, saga, key) DO NOTHING
RETURNING run_id;

-- name: insert_runs
INSERT INTO milepost.run (id, tenant, service, saga, key, definition, shape, policy, input, state, version, wake_at,
    correlation_id, traceparent, deadline_at, resource, priority, input_version, watched)
SELECT g.id, $1, $2, $3, g.key, $4, $5, $6, g.input::jsonb, 'PENDING', 0, g.wake_at, $7, $8, g.deadline_at, NULL,
       g.priority, $9, true
FROM unnest($10::uuid[], $11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::text[])
    AS g(id, key, input, wake_at, deadline_at, priority);

-- Who holds a row now is not waited for: its run leaves the batch. Rows are locked in the order of their ids.
-- name: store_decisions
WITH given AS (
    SELECT id, version, state, code, cause, history_n, finish_n, wake_at, finished_at, active_for, active_since,
        no_undo
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::integer[],
        $8::timestamptz[], $9::timestamptz[], $10::interval[], $11::timestamptz[], $12::boolean[]) AS g(id, version,
        state, code, cause, history_n, finish_n, wake_at, finished_at, active_for, active_since, no_undo)
), free AS MATERIALIZED (
    SELECT id FROM milepost.run WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), cas AS (
    UPDATE milepost.run AS r
    SET state = given.state, code = given.code, cause = given.cause, history_n = given.history_n,
        finish_n = given.finish_n, wake_at = given.wake_at, finished_at = given.finished_at,
        active_for = given.active_for, active_since = given.active_since, no_undo = given.no_undo,
        version = r.version + 1,
        updated_at = milepost.clock()
    FROM free
    JOIN given ON given.id = free.id
    WHERE r.id = free.id AND r.version = given.version
    RETURNING r.id, r.tenant, r.saga, r.key, r.correlation_id, r.state, r.finished_at
), steps AS (
    INSERT INTO milepost.step AS old (run_id, name, iteration, n, kind, state, undo_of, queue, attempt, fence,
        generation, worker, wake_at, doubt, doubt_at, result, code, message, finish_no, probes, nudges, since,
        first_at, started_at, finished_at, limited_until, spent, granted, asked)
    SELECT s.run_id, s.name, s.iteration, s.n, s.kind, s.state, s.undo_of, s.queue, s.attempt, s.fence, s.generation,
           s.worker, s.wake_at, s.doubt, s.doubt_at, s.result, s.code, s.message, s.finish_no, s.probes, s.nudges,
           s.since, s.first_at, s.started_at, s.finished_at, s.limited_until, s.spent, s.granted, s.asked
    FROM jsonb_to_recordset($13::jsonb) AS s(run_id uuid, name text, iteration text, n integer, kind text,
        state text, undo_of text, queue text, attempt integer, fence bigint, generation bigint, worker uuid,
        wake_at timestamptz, doubt boolean, doubt_at timestamptz, result jsonb, code text, message text,
        finish_no integer, probes integer, nudges integer, since timestamptz, first_at timestamptz,
        started_at timestamptz, finished_at timestamptz, limited_until timestamptz, spent jsonb, granted jsonb, asked jsonb)
    WHERE s.run_id = ANY (ARRAY(SELECT id FROM cas))
    ON CONFLICT (run_id, name, iteration) DO UPDATE
    SET state = excluded.state, queue = excluded.queue, attempt = excluded.attempt, fence = excluded.fence,
        generation = excluded.generation, worker = excluded.worker, wake_at = excluded.wake_at,
        doubt = excluded.doubt, doubt_at = excluded.doubt_at, result = excluded.result, code = excluded.code,
        message = excluded.message, finish_no = excluded.finish_no, probes = excluded.probes,
        nudges = excluded.nudges, since = excluded.since, first_at = excluded.first_at,
        started_at = excluded.started_at, finished_at = excluded.finished_at,
        limited_until = excluded.limited_until, spent = excluded.spent, granted = excluded.granted,
        asked = excluded.asked
), entries AS (
    INSERT INTO milepost.history (run_id, n, event, step, iteration, attempt, data)
    SELECT h.run_id, h.n, h.event, h.step, h.iteration, h.attempt, h.data
    FROM jsonb_to_recordset($14::jsonb) AS h(run_id uuid, n integer, event text, step text, iteration text,
        attempt integer, data jsonb)
    WHERE h.run_id = ANY (ARRAY(SELECT id FROM cas))
), settled AS (
    INSERT INTO milepost.reconciliation (id, tenant, run_id, step, iteration, before, evidence, decision, after, actor,
        reason, correlation_id)
    SELECT t.id, cas.tenant, cas.id, t.step, t.iteration, t.before, t.evidence, t.decision, t.after, 'system',
           t.reason, cas.correlation_id
    FROM cas
    JOIN jsonb_to_recordset($15::jsonb) AS t(run_id uuid, id uuid, step text, iteration text, before text,
        evidence jsonb, decision text, after text, reason text) ON t.run_id = cas.id
), audited AS (
    INSERT INTO milepost.audit (id, tenant, actor, kind, act, run_id, step, reason, before, after, evidence)
    SELECT t.id, cas.tenant, 'system', 'SYSTEM', 'reconcile', cas.id, t.step, t.reason,
           jsonb_build_object('state', t.before), jsonb_build_object('state', t.after),
           t.evidence || jsonb_strip_nulls(jsonb_build_object('iteration', nullif(t.iteration, '')))
    FROM cas
    JOIN jsonb_to_recordset($15::jsonb) AS t(run_id uuid, id uuid, step text, iteration text, before text,
        evidence jsonb, decision text, after text, reason text) ON t.run_id = cas.id
), outcome AS (
    UPDATE milepost.run_key AS k
    SET outcome = cas.state
    FROM cas
    WHERE cas.finished_at IS NOT NULL AND k.tenant = cas.tenant AND k.saga = cas.saga AND k.key = cas.key
), sent AS (
    INSERT INTO milepost.outbox (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
    SELECT o.id, o.tenant, o.topic, o.aggregatetype, o.aggregateid, o.type, o.payload, o.headers::jsonb
    FROM unnest($16::uuid[], $17::uuid[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::bytea[],
        $24::text[]) AS o(run_id, id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
    WHERE o.run_id = ANY (ARRAY(SELECT id FROM cas))
)
SELECT id, milepost.clock() AS now FROM cas;

