-- Moving open runs to another version of their saga.

-- name: open_of_others
SELECT r.id, r.key, r.definition
FROM milepost.run AS r
WHERE r.service = $1 AND r.saga = $2 AND r.definition <> $3 AND r.wake_at IS NOT NULL AND r.id > $4
ORDER BY r.id
LIMIT $5;

-- Nothing happens unless the version is the one that was decided on.
-- name: move_run
WITH cas AS (
    UPDATE milepost.run
    SET definition = $3, shape = $4, policy = $5, input = $6::jsonb, input_version = $7, history_n = $8,
        version = version + 1, updated_at = milepost.clock()
    WHERE id = $1 AND version = $2
    RETURNING id, tenant
), told AS (
    INSERT INTO milepost.history (run_id, n, event, data)
    SELECT cas.id, $8, 'run.migrated', $9::jsonb FROM cas
), audited AS (
    INSERT INTO milepost.audit (id, tenant, actor, act, run_id, reason, before, after)
    SELECT $10, cas.tenant, $11, 'run.migrate', cas.id, $12, $13::jsonb, $14::jsonb FROM cas
)
SELECT count(*) FROM cas;

-- name: rename_steps
UPDATE milepost.step AS s
SET name = chr(1) || d.after, queue = d.queue, wake_at = d.wake_at
FROM unnest($2::text[], $3::text[], $4::text[], $5::timestamptz[]) AS d(name, after, queue, wake_at)
WHERE s.run_id = $1 AND s.name = d.name;

-- name: rename_waits
UPDATE milepost.wait AS w
SET step = chr(1) || d.after
FROM unnest($2::text[], $3::text[]) AS d(name, after)
WHERE w.run_id = $1 AND w.step = d.name;

-- name: settle_names
UPDATE milepost.step SET name = substr(name, 2) WHERE run_id = $1 AND left(name, 1) = chr(1);

-- name: settle_waits
UPDATE milepost.wait SET step = substr(step, 2) WHERE run_id = $1 AND left(step, 1) = chr(1);

-- Their messages name what the run is no more pinned to; its work is announced anew.
-- name: forget_handed
DELETE FROM milepost.handover WHERE run_id = $1;
