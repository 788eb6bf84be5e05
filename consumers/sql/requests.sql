-- Requests of persons: written by whoever asks (recovery/requests.py), carried out and answered in one transaction by the orchestrator.

-- Those that this process has the definition for; and those that anybody can answer: the run is gone, or is parked and
-- to be looked for again.
-- name: open_requests
SELECT q.id
FROM milepost.request AS q
LEFT JOIN milepost.run AS r ON r.id = q.run_id
WHERE q.service = $1 AND q.state = 'OPEN'
  AND (r.id IS NULL
       OR r.saga || '/' || r.definition || '#' || r.shape || '@' || r.input_version = ANY ($2::text[])
       OR q.what = 'resume' AND EXISTS (SELECT FROM milepost.handover AS h
                                        WHERE h.run_id = r.id AND h.parked_at IS NOT NULL))
  AND NOT EXISTS (SELECT FROM milepost.resume_check AS c
                  WHERE c.request_id = q.id AND c.state = 'OPEN' AND c.run_version = r.version)
ORDER BY q.id
LIMIT $3;

-- The asker is who, by an act, made the run ask for approval: undo that a person wanted, or a question asked anew.
-- Somebody else's is left alone. As text: SQLAlchemy teaches its connections to decode jsonb, the pool's do not.
-- name: take_request
SELECT q.id, q.run_id, q.what, q.step, q.iteration, q.fence, q.result::text AS result, q.undo,
       q.did_not_happen, q.budget::text AS budget, q.by, q.reason, q.reviewed, q.generation, q.hash, q.roles, q.kind,
       q.run_version, q.confirmed_by,
       (SELECT p.seen FROM milepost.proposal AS p
        WHERE p.id = q.proposal AND p.step IS NOT NULL AND q.run_version IS NULL) AS rests_on,
       EXISTS (SELECT FROM milepost.run AS r WHERE r.id = q.run_id) AS has_run,
       (SELECT a.by FROM milepost.request AS a
        WHERE q.what = 'approve' AND a.run_id = q.run_id AND a.state = 'ACCEPTED'
          AND (a.what IN ('cancel', 'compensate') OR (a.what = 'retry' AND a.step = q.step))
        ORDER BY a.answered_at DESC
        LIMIT 1) AS asker
FROM milepost.request AS q
WHERE q.id = $1 AND q.state = 'OPEN'
FOR UPDATE SKIP LOCKED;

-- What became of it is an entry of the audit, under the request's id.
-- name: answer_request
WITH answered AS (
    UPDATE milepost.request AS q
    SET state = $2, answer = $3, answered_at = milepost.clock()
    WHERE q.id = $1 AND q.state = 'OPEN'
    RETURNING q.*
), audited AS (
    INSERT INTO milepost.audit (id, at, tenant, actor, kind, act, outcome, run_id, step, reason, before, after, evidence)
    SELECT a.id, a.answered_at, a.tenant, a.by, a.kind, 'run.' || a.what,
           CASE a.state WHEN 'ACCEPTED' THEN 'DONE' ELSE 'REFUSED' END, a.run_id, a.step, a.reason, $4::jsonb, $5::jsonb,
           jsonb_strip_nulls(jsonb_build_object('iteration', nullif(a.iteration, ''), 'undo', a.undo,
                                                'did_not_happen', nullif(a.did_not_happen, false),
                                                'budget', a.budget, 'generation', a.generation, 'hash', a.hash,
                                                'roles', nullif(a.roles, '{}'), 'proposal', a.proposal,
                                                'confirmed_by', a.confirmed_by,
                                                'confirm_reason', a.confirm_reason,
                                                'refused', CASE a.state WHEN 'REFUSED' THEN a.answer END))
    FROM answered AS a
)
SELECT count(*) FROM answered;

-- It would be accepted, and waits for a second person.
-- name: hold_request
WITH held AS (
    UPDATE milepost.request AS q
    SET state = 'HELD', held_at = milepost.clock()
    WHERE q.id = $1 AND q.state = 'OPEN' AND q.confirmed_by IS NULL
    RETURNING q.*
)
INSERT INTO milepost.audit (id, tenant, actor, kind, act, outcome, run_id, step, reason, evidence)
SELECT $2, h.tenant, h.by, h.kind, 'run.' || h.what, 'HELD', h.run_id, h.step, h.reason,
       jsonb_build_object('request', h.id, 'risk', $3::text)
FROM held AS h;

-- name: insert_approvals
INSERT INTO milepost.approval (id, tenant, run_id, step, iteration, generation, hash, by, roles, decision, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
