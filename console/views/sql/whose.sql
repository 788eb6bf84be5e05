-- Whose something is: its tenant, and the saga of the run that it belongs to, if to any.

-- name: run
SELECT tenant, saga, id AS run_id FROM milepost.run WHERE id = $1;

-- name: letter
SELECT tenant, NULL::text AS saga, NULL::uuid AS run_id FROM milepost.dead_letter WHERE n = $1;

-- name: signal
SELECT s.tenant, r.saga, s.run_id
FROM milepost.signal AS s
LEFT JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.id = $1;

-- name: request
SELECT q.tenant, r.saga, q.run_id
FROM milepost.request AS q
LEFT JOIN milepost.run AS r ON r.id = q.run_id
WHERE q.id = $1;

-- name: proposal
SELECT tenant, saga, run_id FROM milepost.proposal WHERE id = $1;
