-- Artifacts as operators look at them.

-- name: artifacts_of
SELECT a.tenant, a.run_id, a.step, a.iteration, a.name, a.type, a.location, encode(a.sha256, 'hex') AS sha256, a.size,
       a.created_at
FROM milepost.artifact AS a
WHERE a.run_id = $1
ORDER BY a.created_at, a.step, a.iteration, a.name;

-- name: recorded
SELECT location FROM milepost.artifact WHERE run_id = ANY ($1::uuid[]);

-- Tries that are under way now, whose objects are not recorded yet.
-- name: under_way
SELECT run_id, CASE WHEN iteration = '' THEN name ELSE name || '@' || iteration END AS place, fence
FROM milepost.step
WHERE run_id = ANY ($1::uuid[]) AND worker IS NOT NULL;

-- name: clock
SELECT milepost.clock();

-- name: audit_removal
INSERT INTO milepost.audit (id, actor, act, reason, evidence)
VALUES (milepost.uuid7(), $1, 'artifacts.remove_orphans', $2, jsonb_build_object('removed', $3::bigint, 'bytes', $4::bigint));
