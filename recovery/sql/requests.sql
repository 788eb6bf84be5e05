-- Requests: what is wanted of a run, what it is about, and the second person.

-- The run says whose it is; no row where there is no such run.
-- name: insert_request
INSERT INTO milepost.request (id, tenant, service, run_id, what, step, iteration, fence, result, undo, did_not_happen, by,
    reason, reviewed, budget, generation, hash, roles, kind, run_version, proposal, confirmed_by, confirmed_at,
    confirm_reason)
SELECT $1::uuid, r.tenant, r.service, r.id, $3::text, $4::text, $5::text, $6::bigint, $7::jsonb, $8::boolean,
       $9::boolean, $10::text, $11::text, $12::uuid, $13::jsonb, $14::bigint, $15::text, $16::text[],
       $17::text, $18::bigint, $19::uuid, $20::text, CASE WHEN $20::text IS NOT NULL THEN milepost.clock() END, $21::text
FROM milepost.run AS r
WHERE r.id = $2::uuid
RETURNING id;

-- What an act would be about. The severity is that which the newest version of the saga has; a step's risk that of its
-- approval or undo.
-- name: subject
SELECT r.id, r.tenant, r.service, r.saga, r.key, r.state, r.version, coalesce(w.severity, 'MEDIUM') AS severity,
       s.name AS step, s.state AS step_state, s.fence, s.probes, s.asked ->> 'risk' AS risk
FROM milepost.run AS r
LEFT JOIN milepost.workflow AS w ON w.service = r.service AND w.saga = r.saga
LEFT JOIN milepost.step AS s ON s.run_id = r.id AND s.name = $2::text AND s.iteration = $3::text
WHERE r.id = $1;

-- name: request
SELECT q.id, q.tenant, q.service, q.run_id, q.what, q.step, q.iteration, q.by, q.kind, q.reason, q.at, q.state, q.answer,
       q.answered_at, q.held_at, q.confirmed_by, q.confirm_reason, a.id AS audit, a.after::text AS after
FROM milepost.request AS q
LEFT JOIN milepost.audit AS a ON a.id = q.id AND a.at = q.answered_at
WHERE q.id = $1;

-- name: find_held
SELECT q.id, q.tenant, q.service, q.run_id, r.saga, r.key, q.what, q.step, q.iteration, q.undo, q.by, q.kind, q.reason,
       q.at, q.held_at
FROM milepost.request AS q
LEFT JOIN milepost.run AS r ON r.id = q.run_id
WHERE q.state = 'HELD' AND ($1::uuid IS NULL OR q.id = $1) AND ($2::uuid IS NULL OR q.run_id = $2)
  AND ($3::text[] IS NULL OR q.tenant = ANY ($3)) AND ($4::text[] IS NULL OR r.saga = ANY ($4))
ORDER BY q.held_at, q.id
LIMIT $5;

-- The second person is not the first; what was held goes on to be carried out.
-- name: confirm
WITH confirmed AS (
    UPDATE milepost.request AS q
    SET state = 'OPEN', confirmed_by = $2, confirmed_at = milepost.clock(), confirm_reason = $3
    WHERE q.id = $1 AND q.state = 'HELD' AND lower(q.by) <> lower($2)
    RETURNING q.*
)
INSERT INTO milepost.audit (id, tenant, actor, kind, act, run_id, step, reason, evidence)
SELECT $4, c.tenant, $2, 'PERSON', 'request.confirm', c.run_id, c.step, $3,
       jsonb_build_object('request', c.id, 'act', 'run.' || c.what, 'first', c.by)
FROM confirmed AS c
RETURNING id;

-- Anybody who may confirm may say no, the first person too.
-- name: decline
WITH declined AS (
    UPDATE milepost.request AS q
    SET state = 'REFUSED', answer = 'declined by ' || $2::text || ': ' || $3::text, answered_at = milepost.clock()
    WHERE q.id = $1 AND q.state = 'HELD'
    RETURNING q.*
), refused AS (
    INSERT INTO milepost.audit (id, at, tenant, actor, kind, act, outcome, run_id, step, reason, evidence)
    SELECT d.id, d.answered_at, d.tenant, d.by, d.kind, 'run.' || d.what, 'REFUSED', d.run_id, d.step, d.reason,
           jsonb_build_object('declined_by', $2::text, 'refused', d.answer)
    FROM declined AS d
)
INSERT INTO milepost.audit (id, tenant, actor, kind, act, run_id, step, reason, evidence)
SELECT $4, d.tenant, $2, 'PERSON', 'request.decline', d.run_id, d.step, $3,
       jsonb_build_object('request', d.id, 'act', 'run.' || d.what, 'first', d.by)
FROM declined AS d
RETURNING id;
