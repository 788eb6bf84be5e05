-- Reading the items of a fan-out, in order, after a number.

-- name: items_of
SELECT number, key, input::text, state, attempt, child_id, joined, code, message
FROM milepost.fanout_item
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND number > $4 AND ($6::text IS NULL OR state = $6)
ORDER BY number
LIMIT $5;

-- By an index of their own: a few of many.
-- name: failed_items
SELECT number, key, input::text, state, attempt, child_id, joined, code, message
FROM milepost.fanout_item
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND number > $4 AND state = 'FAILED'
ORDER BY number
LIMIT $5;

-- name: list_is_there
SELECT total FROM milepost.fanout WHERE run_id = $1 AND step = $2 AND iteration = $3;
