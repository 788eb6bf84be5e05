-- Proposals: written by who may not act alone, decided on by a person.

-- name: insert
INSERT INTO milepost.proposal (id, tenant, service, saga, run_id, step, iteration, letter, subject, drift, observed,
    expected, act, arguments, risk, idempotent, rollback, needed, seen, by, kind, reason, evidence, reconciliation,
    expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::jsonb, $12::jsonb, $13, $14::jsonb, $15, $16, $17, $18, $19, $20, $21,
    $22, $23::jsonb, $24, milepost.clock() + $25::interval)
ON CONFLICT (subject, act, seen, md5(arguments::text)) WHERE state = 'OPEN' DO NOTHING
RETURNING id;

-- name: same
SELECT id FROM milepost.proposal
WHERE state = 'OPEN' AND subject = $1 AND act = $2 AND seen = $3 AND arguments = $4::jsonb AND expires_at > milepost.clock();

-- name: clear_old
UPDATE milepost.proposal SET state = 'EXPIRED', decided_at = expires_at
WHERE state = 'OPEN' AND subject = $1 AND act = $2 AND expires_at <= milepost.clock();

-- One that nobody has decided on is EXPIRED when its time is over; whether what it is about has changed, the reader says.
-- name: proposals
SELECT p.*, p.observed::text AS observed_text, p.expected::text AS expected_text, p.arguments::text AS arguments_text,
       p.evidence::text AS evidence_text, q.state AS request_state, q.answer,
       r.version::text AS version, r.state AS run_state, s.state AS step_state, s.fence, s.probes,
       l.status || '/' || l.attempts AS letter_seen,
       CASE WHEN p.state = 'OPEN' AND p.expires_at <= milepost.clock() THEN 'EXPIRED' ELSE p.state END AS stands
FROM milepost.proposal AS p
LEFT JOIN milepost.run AS r ON r.id = p.run_id
LEFT JOIN milepost.step AS s ON s.run_id = p.run_id AND s.name = p.step AND s.iteration = p.iteration
LEFT JOIN milepost.dead_letter AS l ON l.n = p.letter
LEFT JOIN milepost.request AS q ON q.id = p.request
WHERE ($1::uuid IS NULL OR p.id = $1)
  AND ($2::uuid IS NULL OR p.run_id = $2)
  AND ($3::text IS NULL OR lower(p.by) = lower($3))
  AND ($4::text[] IS NULL OR p.tenant = ANY ($4)) AND ($5::text[] IS NULL OR p.saga = ANY ($5))
  AND (NOT $6::boolean OR p.state = 'OPEN')
ORDER BY p.at DESC, p.id DESC
LIMIT $7;

-- name: lock
SELECT id FROM milepost.proposal WHERE id = $1 FOR UPDATE;

-- name: decide
UPDATE milepost.proposal
SET state = $2, decided_by = $3, decided_at = milepost.clock(), decision_reason = $4, request = $5, outcome = $6
WHERE id = $1 AND state = 'OPEN';

-- name: letter
SELECT l.n, l.tenant, l.status || '/' || l.attempts AS seen, l.status, l.code, l.scope
FROM milepost.dead_letter AS l
WHERE l.n = $1;

-- What a person has accepted of a reconciler's plan for a thing in the state in which it was observed.
-- name: accepted
SELECT id, decided_by FROM milepost.proposal
WHERE state = 'ACCEPTED' AND act = 'reconcile' AND arguments ->> 'subject' = $1 AND seen = $2 AND arguments ->> 'action' = $3
ORDER BY decided_at DESC
LIMIT 1;
