-- Steps whose outcome nobody knows, and what was learnt about each. $1 and $2 are tenants and sagas, NULL for all.

-- name: doubtful
SELECT r.id AS run_id, r.tenant, r.service, r.saga, r.key, r.state AS run_state, r.correlation_id, r.priority,
       s.name AS step, s.iteration, s.kind, s.state, s.undo_of, s.queue, s.attempt, s.fence, s.doubt_at, s.wake_at, s.code,
       s.message, s.probes, least(s.since, s.doubt_at) AS since, s.started_at, w.name AS worker, w.expires_at AS lease_until,
       defined.policy::text AS policy, milepost.clock() AS now
FROM milepost.step AS s
JOIN milepost.run AS r ON r.id = s.run_id
LEFT JOIN milepost.worker AS w ON w.id = s.worker
LEFT JOIN LATERAL (
    SELECT found AS policy
    FROM milepost.definition AS d, jsonb_array_elements(d.outline -> 'policy') AS found
    WHERE d.service = r.service AND d.saga = r.saga AND d.version = r.definition AND d.shape = r.shape
      AND found ->> 'name' = coalesce(s.undo_of, s.name)
    ORDER BY d.since DESC
    LIMIT 1
) AS defined ON true
WHERE s.state IN ('UNKNOWN', 'RECONCILING')
  AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
ORDER BY least(s.since, s.doubt_at), s.run_id, s.name
LIMIT $3;

-- name: given_up
-- Those of which asking has ended: a person has to say what happened.
SELECT r.id AS run_id, r.tenant, r.service, r.saga, r.key, r.state AS run_state, r.correlation_id, r.priority,
       s.name AS step, s.iteration, s.kind, s.state, s.undo_of, s.queue, s.attempt, s.fence, s.doubt_at, s.wake_at, s.code,
       s.message, s.probes, s.since, s.started_at, NULL::text AS worker, NULL::timestamptz AS lease_until,
       NULL::text AS policy, milepost.clock() AS now
FROM milepost.step AS s
JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED') AND s.doubt
  AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
ORDER BY s.since, s.run_id, s.name
LIMIT $3;

-- name: evidence
-- The latest first; at most $4 of each step.
SELECT given.run_id, given.step, given.iteration, c.id, c.at, c.before, c.evidence::text AS evidence, c.decision, c.after,
       c.actor, c.reason
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS given (run_id, step, iteration)
CROSS JOIN LATERAL (
    SELECT * FROM milepost.reconciliation AS c
    WHERE c.run_id = given.run_id AND c.step = given.step AND c.iteration = given.iteration
    ORDER BY c.at DESC, c.id DESC
    LIMIT $4
) AS c
ORDER BY given.run_id, given.step, given.iteration, c.at DESC, c.id DESC;
