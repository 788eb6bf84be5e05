-- Artifacts: what steps have made, by reference.

-- name: insert_artifacts
INSERT INTO milepost.artifact (tenant, run_id, step, iteration, name, type, location, sha256, size)
SELECT $1, a.run_id, a.step, a.iteration, a.name, a.type, a.location, a.sha256, a.size
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::bigint[])
    AS a(run_id, step, iteration, name, type, location, sha256, size)
ON CONFLICT (run_id, step, iteration, name) DO UPDATE
SET type = excluded.type, location = excluded.location, sha256 = excluded.sha256, size = excluded.size,
    created_at = excluded.created_at;

-- name: find_artifact
SELECT location, sha256, size
FROM milepost.artifact
WHERE tenant = $1 AND run_id = $2 AND step = $3 AND iteration = $4 AND name = $5;
