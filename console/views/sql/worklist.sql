-- What the worklist has beside what stands in front of a person, which is the query `worklist` of console/sql/acts.sql.
-- $1 tenants and $2 sagas that may be seen, NULL for all; $3 rows at most.

-- Nobody knows whether they took effect. The machine asks; where it cannot, they are soon in front of a person.
-- name: unknown
SELECT 'unknown' AS kind, r.id AS run_id, r.tenant, r.service, r.saga, r.key, r.state AS run_state, r.cause, s.name AS step,
       s.iteration, s.state, s.undo_of, s.code, s.message, s.attempt, s.doubt,
       least(s.since, s.doubt_at) AS since, s.wake_at, s.probes
FROM milepost.step AS s
JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.state = 'UNKNOWN'
  AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
ORDER BY s.since
LIMIT $3;

-- Letters of one consumer with one code about one topic: most often one cause. $1 tenants, $2 rows at most.
-- name: letters
SELECT l.scope, l.topic, l.code, count(*) AS amount, min(l.first_failed_at) AS since,
       (array_agg(l.message ORDER BY l.n DESC))[1] AS message, min(l.n) AS first, bool_or(l.status = 'RETRY_PENDING') AS asked
FROM (SELECT * FROM milepost.dead_letter
      WHERE status IN ('OPEN', 'RETRY_PENDING') AND ($1::text[] IS NULL OR tenant = ANY ($1))
      ORDER BY n LIMIT 10000) AS l
GROUP BY l.scope, l.topic, l.code
ORDER BY min(l.first_failed_at)
LIMIT $2;

-- name: severities
SELECT DISTINCT ON (w.saga) w.saga, w.severity FROM milepost.workflow AS w ORDER BY w.saga, w.version DESC, w.since DESC;
