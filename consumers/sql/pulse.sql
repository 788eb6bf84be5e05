-- What running steps ask (consumers/pulse.py). Only a try of a step is stopped by its run: an undo and a probe go on.

-- name: stopping_runs
SELECT DISTINCT s.run_id
FROM milepost.step AS s
JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.worker = $1 AND s.state = 'RUNNING' AND r.cause IS NOT NULL;

-- A row only while the step is held under this very fence.
-- name: beat
SELECT r.cause IS NOT NULL AND s.state = 'RUNNING'
FROM milepost.step AS s
JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.run_id = $1 AND s.name = $2 AND s.iteration = $3 AND s.fence = $4 AND s.worker = $5;

-- name: beat_progress
UPDATE milepost.step AS s
SET progress = $6::jsonb
FROM milepost.run AS r
WHERE s.run_id = $1 AND s.name = $2 AND s.iteration = $3 AND s.fence = $4 AND s.worker = $5 AND r.id = s.run_id
RETURNING r.cause IS NOT NULL AND s.state = 'RUNNING';

-- name: beat_spending
UPDATE milepost.step
SET spending = $6::jsonb
WHERE run_id = $1 AND name = $2 AND iteration = $3 AND fence = $4 AND worker = $5;
