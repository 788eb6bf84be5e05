-- What was decided without a person, and on what evidence.

-- Of one run by its index, else along the primary key: ids are in the order of time.
-- name: reconciliations
SELECT c.id, c.at, c.tenant, c.service, c.run_id, r.saga, r.key, c.step, c.iteration, c.drift, c.subject, c.before,
       c.evidence::text AS evidence, c.decision, c.after, c.actor, c.reason, c.level, c.correlation_id
FROM milepost.reconciliation AS c
LEFT JOIN milepost.run AS r ON r.id = c.run_id
WHERE ($1::text[] IS NULL OR c.tenant = ANY ($1))
  AND ($2::text[] IS NULL OR r.saga = ANY ($2))
  AND ($3::uuid IS NULL OR c.run_id = $3)
  AND ($4::text IS NULL OR c.drift = $4)
  AND ($5::uuid IS NULL OR c.id < $5)
ORDER BY c.id DESC
LIMIT $6;
