-- Fingerprints of runs.

-- name: claim_fingerprint
INSERT INTO milepost.fingerprint (run_id, tenant, saga, sha256, parts)
VALUES ($1, $2, $3, $4, $5::jsonb)
ON CONFLICT (tenant, saga, sha256) WHERE current DO NOTHING
RETURNING run_id;

-- The run may be gone, or may never have come to be.
-- name: holder_of_fingerprint
SELECT f.run_id, r.key, r.state
FROM milepost.fingerprint AS f
LEFT JOIN milepost.run AS r ON r.id = f.run_id
WHERE f.tenant = $1 AND f.saga = $2 AND f.sha256 = $3 AND f.current
FOR UPDATE OF f;

-- name: release_fingerprint
UPDATE milepost.fingerprint SET current = false WHERE run_id = $1 AND current;

-- name: forget_fingerprint
DELETE FROM milepost.fingerprint WHERE run_id = $1;

-- name: point_key
UPDATE milepost.run_key SET run_id = $4, outcome = $5 WHERE tenant = $1 AND saga = $2 AND key = $3;
