-- Fan-out: lists of items, and the runs that are started for them. Whoever changes a list locks its row of
-- milepost.fanout first, in a statement of its own, and then reads; so there is no change of a list beside another.

-- Rows come and change in thousands, so that statistics lag behind; what finds them must not depend on these.
-- name: items_by_index
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL jit = off;

-- name: store_items
INSERT INTO milepost.fanout_item (run_id, step, iteration, number, key, input)
SELECT $1, $2, $3, i.number, i.key, i.input::jsonb
FROM unnest($4::integer[], $5::text[], $6::text[]) AS i(number, key, input);

-- name: store_list
INSERT INTO milepost.fanout (run_id, step, iteration, attempt, input_version, total) VALUES ($1, $2, $3, $4, $5, $6);

-- name: forget_items
DELETE FROM milepost.fanout_item WHERE run_id = $1 AND step = $2 AND iteration = $3;

-- name: lock_list
SELECT attempt, input_version, total, next, started, succeeded, failed
FROM milepost.fanout
WHERE run_id = $1 AND step = $2 AND iteration = $3
FOR NO KEY UPDATE;

-- name: waiting_row
SELECT r.id, r.tenant, r.service, r.saga, r.key, r.definition, r.shape, r.input_version, r.state, r.correlation_id, r.traceparent,
       r.cause, r.no_undo, s.code, s.attempt, s.generation
FROM milepost.step AS s
JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.run_id = $1 AND s.name = $2 AND s.iteration = $3 AND s.kind = 'EACH' AND s.state = 'WAITING';

-- The lists that have items of these runs.
-- name: lists_of
SELECT DISTINCT run_id, step, iteration FROM milepost.fanout_item
WHERE child_id = ANY ($1::uuid[])
ORDER BY run_id, step, iteration;

-- name: started_runs
SELECT child_id, joined FROM milepost.fanout_item
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND state = 'STARTED';

-- What has ended of these runs; $5 says that the node is being stopped, so that an item which fails is given up.
-- name: end_items
WITH ended AS (
    UPDATE milepost.fanout_item AS i
    SET state = CASE WHEN c.state IN ('SUCCEEDED', 'PARTIALLY_SUCCEEDED') THEN 'SUCCEEDED'
                     WHEN $5 THEN 'CANCELLED' ELSE 'FAILED' END,
        code = CASE WHEN c.state NOT IN ('SUCCEEDED', 'PARTIALLY_SUCCEEDED')
                    THEN coalesce(c.cause, c.code, 'CHILD_' || c.state) END,
        message = CASE WHEN c.state NOT IN ('SUCCEEDED', 'PARTIALLY_SUCCEEDED')
                       THEN c.saga || '/' || c.key || ' has ended as ' || c.state || coalesce((
                           SELECT ': ' || s.name || ': ' || s.message FROM milepost.step AS s
                           WHERE s.run_id = c.id AND s.state = 'FAILED' AND s.message <> ''
                           ORDER BY s.n DESC LIMIT 1
                       ), '') END
    FROM milepost.run AS c
    WHERE i.child_id = ANY ($4::uuid[]) AND i.state = 'STARTED'
      AND i.run_id = $1 AND i.step = $2 AND i.iteration = $3
      AND c.id = i.child_id AND c.finished_at IS NOT NULL
    RETURNING i.state
)
SELECT count(*) AS ended, count(*) FILTER (WHERE state = 'SUCCEEDED') AS succeeded,
       count(*) FILTER (WHERE state = 'FAILED') AS failed
FROM ended;

-- name: next_items
SELECT number, key, input::text AS input, attempt FROM milepost.fanout_item
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND number >= $4 AND state = 'PENDING'
ORDER BY number
LIMIT $5;

-- name: give_out
UPDATE milepost.fanout_item AS i
SET state = g.state, child_id = g.child_id, joined = g.joined, code = g.code, message = g.message
FROM unnest($4::integer[], $5::text[], $6::uuid[], $7::boolean[], $8::text[], $9::text[])
    AS g(number, state, child_id, joined, code, message)
WHERE i.run_id = $1 AND i.step = $2 AND i.iteration = $3 AND i.number = g.number;

-- name: store_numbers
UPDATE milepost.fanout SET attempt = $4, next = $5, started = $6, succeeded = $7, failed = $8
WHERE run_id = $1 AND step = $2 AND iteration = $3;

-- One that has had a run gets another one, under a key of its own.
-- name: begin_again
UPDATE milepost.fanout_item
SET state = 'PENDING', attempt = attempt + CASE WHEN child_id IS NULL THEN 0 ELSE 1 END, child_id = NULL, joined = false,
    code = NULL, message = NULL
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND state = 'FAILED';

-- name: give_up
UPDATE milepost.fanout_item SET state = 'CANCELLED'
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND number >= $4 AND number < $5 AND state = 'PENDING';

-- Somebody else's runs go on, and are not waited for.
-- name: let_go
UPDATE milepost.fanout_item SET state = 'CANCELLED'
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND state = 'STARTED' AND joined
RETURNING number;
