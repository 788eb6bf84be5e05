-- Several versions of one saga: messages handed over to who can decide, runs that nobody can, and what is open.

-- The pin of a run is saga/version#shape@input version. $6 is the service, $7 what this process can decide about. The row
-- is not announced again every few seconds while nobody can: like the waker, this pushes wake_at and no version.
-- name: hand_over
WITH strange AS (
    SELECT r.id, r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version AS pin, s.kind, s.queue
    FROM milepost.run AS r
    LEFT JOIN milepost.step AS s ON s.run_id = r.id AND s.name = $3 AND s.iteration = $4
    WHERE r.id = $1 AND r.service = $6 AND r.wake_at IS NOT NULL AND ($3 = '' OR s.wake_at IS NOT NULL)
      AND r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version <> ALL ($7::text[])
), handed AS (
    INSERT INTO milepost.handover AS h (run_id, kind, step, iteration, generation, service, queue, pin)
    SELECT id, CASE WHEN $2 = 'work' AND kind = 'UNDO' THEN 'compensation' ELSE $2 END, $3, $4, $5, $6,
           coalesce(queue, ''), pin
    FROM strange
    ON CONFLICT (run_id, kind, step, iteration) DO UPDATE
        SET n = h.n + 1, generation = excluded.generation, queue = excluded.queue, pin = excluded.pin
    RETURNING h.run_id
), pushed_step AS (
    UPDATE milepost.step AS s
    SET wake_at = greatest(s.wake_at, milepost.clock() + $8::interval)
    FROM handed
    WHERE s.run_id = handed.run_id AND s.name = $3 AND s.iteration = $4 AND s.wake_at IS NOT NULL
), pushed_run AS (
    UPDATE milepost.run AS r
    SET wake_at = greatest(r.wake_at, milepost.clock() + $8::interval)
    FROM handed
    WHERE r.id = handed.run_id AND $3 = '' AND r.wake_at IS NOT NULL
)
SELECT count(*) FROM handed;

-- Of the replies to one operation only one lies there: that it was done says more than any other. $5 is the service, $6
-- what this process can decide about.
-- name: hand_over_reply
INSERT INTO milepost.handover AS h (run_id, kind, step, iteration, service, pin, payload)
SELECT r.id, 'reply', s.name, s.iteration, r.service,
       r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version, $7::jsonb
FROM milepost.run AS r
JOIN milepost.step AS s ON s.run_id = r.id AND s.iteration = $3
    AND CASE WHEN $4 = 'undo' THEN s.undo_of ELSE s.name END = $2
WHERE r.id = $1 AND r.service = $5 AND r.wake_at IS NOT NULL AND s.wake_at IS NOT NULL
  AND r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version <> ALL ($6::text[])
ON CONFLICT (run_id, kind, step, iteration) DO UPDATE
    SET n = h.n + 1,
        payload = CASE WHEN h.payload ->> 'outcome' = 'done' THEN h.payload ELSE excluded.payload END
RETURNING true;

-- $2 is what this process can decide about, $3 the kinds of message and $4 the queues that it is there for.
-- name: handed
SELECT h.run_id, h.kind, h.step, h.iteration, h.generation, h.queue, h.pin, h.n, h.payload::text AS payload,
       coalesce((SELECT r.priority FROM milepost.run AS r WHERE r.id = h.run_id), 'NORMAL') AS priority
FROM milepost.handover AS h
WHERE h.service = $1 AND h.pin = ANY ($2::text[]) AND h.kind = ANY ($3::text[])
  AND (h.kind IN ('timer', 'resume', 'reply') OR h.queue = ANY ($4::text[]))
  AND h.look_at <= (SELECT milepost.clock())
ORDER BY h.since
LIMIT $5;

-- What has been acted on, unless the same message has come again meanwhile; a run that was parked is told to go on.
-- name: settle_handed
WITH done AS (
    DELETE FROM milepost.handover AS h
    USING unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[]) AS d(run_id, kind, step, iteration, n)
    WHERE h.run_id = d.run_id AND h.kind = d.kind AND h.step = d.step AND h.iteration = d.iteration AND h.n = d.n
    RETURNING h.run_id, h.parked_at
), going AS (
    UPDATE milepost.run AS r
    SET version = r.version + 1, history_n = r.history_n + 1, updated_at = milepost.clock()
    WHERE r.id IN (SELECT run_id FROM done WHERE parked_at IS NOT NULL)
    RETURNING r.id, r.history_n
), told AS (
    INSERT INTO milepost.history (run_id, n, event, data)
    SELECT id, history_n, 'run.unparked', '{"reason": "a process has its definition"}' FROM going
)
SELECT count(*) FROM going;

-- What could not be acted on: half a second at first, doubled each time, ten minutes at most.
-- name: put_off_handed
UPDATE milepost.handover AS h
SET tries = h.tries + 1,
    look_at = milepost.clock() + least(interval '0.5 s' * 2 ^ least(h.tries, 20), interval '10 min')
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS d(run_id, kind, step, iteration)
WHERE h.run_id = d.run_id AND h.kind = d.kind AND h.step = d.step AND h.iteration = d.iteration;

-- A message that has been waiting for longer than $2, and no live process of the service could have taken it: a person is
-- told. Nothing of the run is decided, for nobody here knows its definition.
-- name: park
WITH late AS (
    SELECT h.run_id, h.kind, h.step, h.iteration, h.pin,
           EXISTS (SELECT FROM milepost.handover AS p WHERE p.run_id = h.run_id AND p.parked_at IS NOT NULL) AS known
    FROM milepost.handover AS h
    WHERE h.service = $1 AND h.parked_at IS NULL AND h.since < (SELECT milepost.clock()) - $2::interval
      AND NOT EXISTS (SELECT FROM milepost.worker AS w
                      WHERE w.service = h.service AND w.expires_at > (SELECT milepost.clock()) - $2::interval
                        AND (h.pin = ANY (w.pins)
                             OR cardinality(w.pins) = 0 AND split_part(h.pin, '#', 1) = ANY (w.definitions)))
    ORDER BY h.run_id
    LIMIT $3
    FOR UPDATE OF h SKIP LOCKED
), marked AS (
    UPDATE milepost.handover AS h
    SET parked_at = milepost.clock()
    FROM late AS l
    WHERE h.run_id = l.run_id AND h.kind = l.kind AND h.step = l.step AND h.iteration = l.iteration
    RETURNING h.run_id, l.known, l.pin
), parked AS (
    UPDATE milepost.run AS r
    SET version = r.version + 1, history_n = r.history_n + 1, updated_at = milepost.clock()
    FROM (SELECT DISTINCT run_id, pin FROM marked WHERE NOT known) AS m
    WHERE r.id = m.run_id
    RETURNING r.id, r.history_n, m.pin
), told AS (
    INSERT INTO milepost.history (run_id, n, event, data)
    SELECT id, history_n, 'run.parked',
           jsonb_build_object('code', 'DEFINITION_MISSING', 'definition', split_part(pin, '#', 1))
    FROM parked
)
SELECT count(*) FROM parked;

-- A person wants it looked for again: the time begins anew.
-- name: unpark
WITH again AS (
    UPDATE milepost.handover AS h
    SET parked_at = NULL, since = milepost.clock()
    WHERE h.run_id = $1 AND EXISTS (SELECT FROM milepost.handover AS p
                                    WHERE p.run_id = $1 AND p.parked_at IS NOT NULL)
    RETURNING h.run_id
), going AS (
    UPDATE milepost.run AS r
    SET version = r.version + 1, history_n = r.history_n + 1, updated_at = milepost.clock()
    WHERE r.id IN (SELECT run_id FROM again)
    RETURNING r.id, r.history_n, r.state
), told AS (
    INSERT INTO milepost.history (run_id, n, event, data)
    SELECT id, history_n, 'run.unparked', jsonb_build_object('by', $2::text, 'reason', $3::text) FROM going
)
SELECT state FROM going;

-- name: open_runs
SELECT r.saga, r.definition AS version, r.shape, r.input_version, r.policy, count(*) AS amount,
       min(r.id::text || ' ' || r.key) AS first,
       (SELECT d.outline::text FROM milepost.definition AS d
        WHERE d.service = $1 AND d.saga = r.saga AND d.version = r.definition AND d.shape = r.shape
        ORDER BY (d.policy = r.policy) DESC, d.since DESC LIMIT 1) AS outline
FROM milepost.run AS r
WHERE r.service = $1 AND r.wake_at IS NOT NULL
GROUP BY r.saga, r.definition, r.shape, r.input_version, r.policy
ORDER BY r.saga, r.definition, r.shape, r.input_version, r.policy;

-- A process that was refused a moment ago is started again; $2 is how long that counts.
-- name: live_definitions
SELECT pins, definitions FROM milepost.worker WHERE service = $1 AND expires_at > (SELECT milepost.clock())
UNION ALL
SELECT pins, '{}' FROM milepost.refused WHERE service = $1 AND at > (SELECT milepost.clock()) - $2::interval;

-- name: note_refusal
INSERT INTO milepost.refused (service, pins)
VALUES ($1, $2)
ON CONFLICT (service, pins) DO UPDATE SET at = milepost.clock();

-- name: register_definition
INSERT INTO milepost.definition (service, saga, version, shape, policy, outline)
VALUES ($1, $2, $3, $4, $5, $6::jsonb)
ON CONFLICT DO NOTHING;
