-- Looks at runs that stood in front of a person, before they go on: asked for by whoever carries requests out, done by workers.

-- name: find_check
SELECT c.state, c.run_version, c.reasons::text AS reasons FROM milepost.resume_check AS c WHERE c.request_id = $1;

-- Anew where the run has moved since the last look.
-- name: want_check
INSERT INTO milepost.resume_check (request_id, tenant, service, run_id, run_version)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (request_id) DO UPDATE
SET state = 'OPEN', run_version = excluded.run_version, reasons = '[]', worker = NULL, ended_at = NULL;

-- One at a time in a process, so what it has claimed already it has given up.
-- name: claim_check
UPDATE milepost.resume_check AS c
SET worker = $1, fence = c.fence + 1, started_at = milepost.clock()
WHERE c.request_id = (
    SELECT o.request_id
    FROM milepost.resume_check AS o
    JOIN milepost.run AS r ON r.id = o.run_id
    WHERE o.service = $2 AND o.state = 'OPEN'
      AND r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version = ANY ($3::text[])
      AND (o.worker = $1 OR NOT EXISTS (SELECT FROM milepost.worker AS w
                                        WHERE w.id = o.worker AND w.expires_at > (SELECT milepost.clock())))
    ORDER BY o.asked_at
    LIMIT 1
    FOR UPDATE OF o SKIP LOCKED)
RETURNING c.request_id, c.run_id, c.run_version, c.fence;

-- name: rests_on
SELECT parts::text AS parts FROM milepost.fingerprint WHERE run_id = $1;

-- name: end_check
UPDATE milepost.resume_check
SET state = $4, reasons = $5::jsonb, ended_at = milepost.clock(), worker = NULL, run_version = $6
WHERE request_id = $1 AND worker = $2 AND fence = $3 AND state = 'OPEN';

-- name: audit_check
INSERT INTO milepost.audit (id, tenant, actor, act, run_id, reason, after, evidence)
VALUES ($1, $2, $3, 'run.resume_check', $4, $5, jsonb_build_object('outcome', $6::text), $7::jsonb);
