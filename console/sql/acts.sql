-- Acts by a person: the step that is meant, what became of a request, and what stands in front of a person.

-- name: steps_of
SELECT name, iteration, fence, asked::text AS asked FROM milepost.step WHERE run_id = $1 ORDER BY n;

-- With $3, who asks, and $4, the roles of that person, without the questions that are not for this person to answer. $5 tenants
-- and $6 workflows, NULL for all. With $7, the severities of workflows by name, the most urgent first: what is asked about a
-- high risk, or belongs to a severe workflow; of equals, and without $7, the oldest.
-- name: worklist
SELECT found.*, found.asks::text AS question, milepost.clock() AS now,
       (SELECT q.what FROM milepost.request AS q
        WHERE q.run_id = found.run_id AND q.state = 'OPEN' AND coalesce(q.step, found.step) IS NOT DISTINCT FROM found.step
        ORDER BY q.id DESC LIMIT 1) AS asked
FROM (
    SELECT CASE WHEN (s.asked ->> 'open')::boolean THEN 'approval' ELSE lower(s.kind) END AS kind, r.id AS run_id, r.tenant,
           r.service, r.saga, r.key, r.state AS run_state, r.cause, s.name AS step, s.iteration, s.state, s.undo_of, s.code, s.message, s.attempt, s.doubt, s.since,
           CASE WHEN (s.asked ->> 'open')::boolean THEN s.asked END AS asks, s.wake_at
    FROM milepost.step AS s
    JOIN milepost.run AS r ON r.id = s.run_id
    WHERE s.state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED') OR (s.kind = 'APPROVAL' AND s.state = 'WAITING')
    UNION ALL
    SELECT 'run', r.id, r.tenant, r.service, r.saga, r.key, r.state, r.cause, NULL, '', r.state, NULL, r.code, NULL, 0, false,
           r.updated_at, NULL, NULL
    FROM milepost.run AS r
    WHERE r.state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED')
      AND NOT EXISTS (SELECT FROM milepost.step AS s
                      WHERE s.run_id = r.id AND s.state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED'))
    UNION ALL
    SELECT 'version', r.id, r.tenant, r.service, r.saga, r.key, r.state, r.cause, NULL, '', r.state, NULL,
           'DEFINITION_MISSING',
           'no live process of ' || r.service || ' has had ' || r.saga || ' v' || r.definition || ' in the form that this run has',
           0, false, h.since, NULL, NULL
    FROM (SELECT run_id, min(parked_at) AS since FROM milepost.handover WHERE parked_at IS NOT NULL GROUP BY run_id) AS h
    JOIN milepost.run AS r ON r.id = h.run_id
    UNION ALL
    SELECT 'confirm', r.id, r.tenant, r.service, r.saga, r.key, r.state, r.cause, q.step, q.iteration, q.state, NULL,
           NULL, replace(q.what, '_', '-') || ' asked for by ' || q.by || ': ' || q.reason, 0, false, q.held_at,
           NULL, NULL
    FROM milepost.request AS q
    JOIN milepost.run AS r ON r.id = q.run_id
    WHERE q.state = 'HELD' AND ($3::text IS NULL OR lower(q.by) <> lower($3))
) AS found
WHERE (cardinality($1::text[]) = 0 OR found.kind = ANY ($1))
  AND ($3::text IS NULL OR found.asks IS NULL
       OR ((jsonb_array_length(found.asks -> 'roles') = 0 OR found.asks -> 'roles' ?| $4::text[])
           AND NOT EXISTS (SELECT FROM jsonb_array_elements(found.asks -> 'given') AS g WHERE lower(g ->> 'by') = lower($3))))
  AND ($5::text[] IS NULL OR found.tenant = ANY ($5)) AND ($6::text[] IS NULL OR found.saga = ANY ($6))
ORDER BY CASE WHEN $7::jsonb IS NOT NULL
              THEN greatest(coalesce(array_position('{LOW,MEDIUM,HIGH,CRITICAL}'::text[], found.asks ->> 'risk'), 0),
                            coalesce(array_position('{LOW,MEDIUM,HIGH,CRITICAL}'::text[], $7 ->> found.saga), 2)) END DESC,
         found.since
LIMIT $2;

-- name: old_requests
SELECT count(*) AS amount, max(milepost.clock() - q.at) AS oldest,
       (array_agg(coalesce(r.saga || '/' || r.key, q.run_id::text) ORDER BY q.at))[1] AS first
FROM milepost.request AS q
LEFT JOIN milepost.run AS r ON r.id = q.run_id
WHERE q.state = 'OPEN' AND q.at < (SELECT milepost.clock()) - $1::interval;

-- name: requests_of
SELECT id, what, step, iteration, undo, by, reason, at, state, answer, answered_at
FROM milepost.request
WHERE run_id = $1
ORDER BY id;

-- What the person has read last that stood in the way, and that a person may decide.
-- name: last_review
SELECT request_id
FROM milepost.resume_check
WHERE run_id = $1 AND state = 'REVIEW_REQUIRED'
ORDER BY ended_at DESC
LIMIT 1;
