-- What the test kit asks of its throwaway database.

-- name: set_clock
SELECT milepost.kit_set_clock($1);

-- name: current_database
SELECT current_database();

-- name: kit_databases
SELECT datname FROM pg_catalog.pg_database WHERE datname LIKE $1;

-- name: drop_statement
SELECT format('DROP DATABASE IF EXISTS %I WITH (FORCE)', $1::text);

-- name: new_outbox_rows
SELECT id, topic, aggregateid, payload, headers::text AS headers
FROM milepost.outbox
WHERE id <> ALL ($1::uuid[])
ORDER BY seq;

-- name: published
SELECT payload, headers::text AS headers FROM milepost.outbox WHERE type = $1 AND payload IS NOT NULL ORDER BY seq;

-- name: run_state
SELECT state FROM milepost.run WHERE id = $1;

-- name: passed_run
SELECT EXISTS (SELECT FROM milepost.kit_state WHERE run_id = $1 AND step = '' AND state = $2);

-- name: passed_step
SELECT EXISTS (SELECT FROM milepost.kit_state WHERE run_id = $1 AND step = $2 AND state = $3)
    OR EXISTS (SELECT FROM milepost.history WHERE run_id = $1 AND step = $2 AND event = ANY ($4::text[]));

-- name: step_result
SELECT state, result::text AS result FROM milepost.step WHERE run_id = $1 AND name = $2
ORDER BY state = 'SUCCEEDED' DESC, string_to_array(iteration, '.')::integer[] DESC LIMIT 1;

-- name: sent_command
SELECT coalesce(s.undo_of, s.name) AS step, s.iteration, s.attempt, s.kind = 'UNDO' AS undo
FROM milepost.step AS s
WHERE s.run_id = $1 AND s.name = $2 AND s.attempt > 0
ORDER BY s.n DESC LIMIT 1;

-- The row that asks comes first, of those that do the latest.
-- name: open_question
SELECT s.iteration, s.asked::text AS asked
FROM milepost.step AS s
WHERE s.run_id = $1 AND s.name = $2
ORDER BY coalesce((s.asked ->> 'open')::boolean, false) DESC, s.n DESC
LIMIT 1;

-- name: next_due
SELECT min(due.wake_at)
FROM (
    SELECT s.wake_at FROM milepost.step AS s JOIN milepost.run AS r ON r.id = s.run_id WHERE r.service = $1
    UNION ALL
    SELECT r.wake_at FROM milepost.run AS r WHERE r.service = $1
) AS due;

-- The next delay that may be skipped, unless a wait's timeout or a person's reminder comes first or with it.
-- name: next_delay
SELECT skip.at
FROM (
    SELECT min(s.wake_at) FILTER (WHERE s.state IN ('PENDING', 'RETRY_PENDING', 'UNKNOWN', 'COMPENSATION_PENDING')),
           min(s.wake_at) FILTER (WHERE s.state IN ('WAITING', 'MANUAL_REQUIRED', 'COMPENSATION_FAILED')
               AND NOT (s.kind IN ('CHILD', 'EACH') AND s.state = 'WAITING'))
    FROM milepost.step AS s
    JOIN milepost.run AS r ON r.id = s.run_id
    WHERE r.service = $1
) AS skip (at, bound)
WHERE skip.at < coalesce(skip.bound, 'infinity');

-- The latest runs; items of a fan-out only where there is room, those first that have not succeeded.
-- name: timeline_runs
SELECT t.id
FROM (
    SELECT r.id, r.created_at
    FROM milepost.run AS r
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT 1 FROM milepost.fanout_item AS i WHERE i.child_id = r.id) AS one
    ) AS item
    ORDER BY item.one, item.one AND r.state = 'SUCCEEDED', r.created_at DESC, r.id DESC
    LIMIT $1
) AS t
ORDER BY t.created_at, t.id;

-- name: timeline_run
SELECT r.saga, r.key, r.state, r.code, r.cause, r.created_at, milepost.clock() AS now FROM milepost.run AS r WHERE r.id = $1;

-- name: timeline_steps
SELECT s.name, s.iteration, s.state, s.attempt, s.probes, s.code, s.message, s.wake_at
FROM milepost.step AS s
WHERE s.run_id = $1
ORDER BY s.n;

-- name: timeline_history
SELECT h.at, h.event, h.step, h.iteration, h.attempt, h.data::text AS data
FROM milepost.history AS h
WHERE h.run_id = $1
ORDER BY h.n;

-- name: dead_letters
SELECT d.scope, d.topic, d.stage, d.code, d.message FROM milepost.dead_letter AS d ORDER BY d.first_failed_at LIMIT 20;

-- name: is_held
SELECT state = 'HELD' FROM milepost.request WHERE id = $1;
