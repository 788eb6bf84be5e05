-- How far partitions were read: what only matters when offsets were lost or a topic was made anew.

-- name: moved_at
SELECT at FROM milepost.consumer_position WHERE consumer = $1 AND topic = $2 AND partition = $3;

-- name: move_back
UPDATE milepost.consumer_position
SET next_offset = $4, at = milepost.clock()
WHERE consumer = $1 AND topic = $2 AND partition = $3 AND next_offset > $4;

-- name: forget_attempts
DELETE FROM milepost.inbox_attempt WHERE consumer = $1 AND topic = $2 AND partition = $3;
