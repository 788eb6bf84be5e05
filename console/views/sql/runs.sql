-- Finding runs, the youngest first. Which of these is asked depends on what is known of the runs, so that each goes along an
-- index and ends after a page. The first arguments are those of all: $1 tenants and $2 sagas that may be seen (NULL for all),
-- $3 the id before which the page begins, $4 and $5 when they began, $6 states (empty for all), $7 rows at most, $8 and $9 the
-- bounds that this puts to ids.

-- name: youngest
SELECT r.id FROM milepost.run AS r
WHERE r.id < $3 AND r.id BETWEEN $8 AND $9
  AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
  AND ($4::timestamptz IS NULL OR r.created_at >= $4) AND ($5::timestamptz IS NULL OR r.created_at < $5)
  AND (cardinality($6::text[]) = 0 OR r.state = ANY ($6))
ORDER BY r.id DESC LIMIT $7;

-- name: by_state
SELECT found.id
FROM unnest($6::text[]) AS wanted(state)
CROSS JOIN LATERAL (
    SELECT r.id FROM milepost.run AS r
    WHERE r.state = wanted.state AND r.state <> 'SUCCEEDED' AND r.id < $3 AND r.id BETWEEN $8 AND $9
      AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
      AND ($4::timestamptz IS NULL OR r.created_at >= $4) AND ($5::timestamptz IS NULL OR r.created_at < $5)
    ORDER BY r.id DESC LIMIT $7
) AS found
ORDER BY found.id DESC LIMIT $7;

-- name: by_saga
SELECT found.id
FROM unnest($2::text[]) AS wanted(saga)
CROSS JOIN LATERAL (
    SELECT r.id FROM milepost.run AS r
    WHERE r.saga = wanted.saga AND r.id < $3 AND r.id BETWEEN $8 AND $9
      AND ($1::text[] IS NULL OR r.tenant = ANY ($1))
      AND ($4::timestamptz IS NULL OR r.created_at >= $4) AND ($5::timestamptz IS NULL OR r.created_at < $5)
      AND (cardinality($6::text[]) = 0 OR r.state = ANY ($6))
    ORDER BY r.id DESC LIMIT $7
) AS found
ORDER BY found.id DESC LIMIT $7;

-- name: by_tenant
SELECT found.id
FROM unnest($1::text[]) AS wanted(tenant)
CROSS JOIN LATERAL (
    SELECT r.id FROM milepost.run AS r
    WHERE r.tenant = wanted.tenant AND r.tenant <> '' AND r.id < $3 AND r.id BETWEEN $8 AND $9
      AND ($2::text[] IS NULL OR r.saga = ANY ($2))
      AND ($4::timestamptz IS NULL OR r.created_at >= $4) AND ($5::timestamptz IS NULL OR r.created_at < $5)
      AND (cardinality($6::text[]) = 0 OR r.state = ANY ($6))
    ORDER BY r.id DESC LIMIT $7
) AS found
ORDER BY found.id DESC LIMIT $7;

-- $10 is what was typed: a key, a correlation, or SAGA/KEY; $11 and $12 bound the ids that begin like it.
-- name: hits
SELECT r.id FROM milepost.run AS r
WHERE r.id = ANY (ARRAY(
    (SELECT k.id FROM milepost.run AS k WHERE k.key = $10 ORDER BY k.id DESC LIMIT 1000)
    UNION (SELECT c.id FROM milepost.run AS c WHERE c.correlation_id = $10 ORDER BY c.id DESC LIMIT 1000)
    UNION (SELECT n.id FROM milepost.run AS n WHERE n.saga = split_part($10, '/', 1)
               AND n.key = substr($10, length(split_part($10, '/', 1)) + 2) ORDER BY n.id DESC LIMIT 1000)
    UNION (SELECT b.id FROM milepost.run AS b WHERE b.id BETWEEN $11 AND $12 ORDER BY b.id DESC LIMIT 1000)))
  AND r.id < $3 AND r.id BETWEEN $8 AND $9
  AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
  AND ($4::timestamptz IS NULL OR r.created_at >= $4) AND ($5::timestamptz IS NULL OR r.created_at < $5)
  AND (cardinality($6::text[]) = 0 OR r.state = ANY ($6))
ORDER BY r.id DESC LIMIT $7;

-- name: lines
SELECT r.id, r.tenant, r.service, r.saga, r.key, r.definition, r.state, r.code, r.cause, r.correlation_id, r.created_at,
       r.finished_at, r.updated_at, s.name AS step, s.iteration, s.state AS step_state, s.since AS step_since, s.attempt
FROM milepost.run AS r
LEFT JOIN LATERAL (
    SELECT l.name, l.iteration, l.state, l.attempt,
           CASE WHEN l.state IN ('UNKNOWN', 'RECONCILING') THEN least(l.since, l.doubt_at) ELSE l.since END AS since
    FROM milepost.step AS l
    WHERE l.run_id = r.id AND l.wake_at IS NOT NULL
    ORDER BY l.n DESC
    LIMIT 1
) AS s ON true
WHERE r.id = ANY ($1::uuid[])
ORDER BY r.id DESC;

-- name: now
SELECT milepost.clock();

-- Jumps from one workflow's first run to the next one's along the index, instead of reading all.
-- name: sagas
WITH RECURSIVE place (saga) AS (
    (SELECT r.saga FROM milepost.run AS r ORDER BY r.saga LIMIT 1)
    UNION ALL
    SELECT (SELECT r.saga FROM milepost.run AS r WHERE r.saga > place.saga ORDER BY r.saga LIMIT 1)
    FROM place WHERE place.saga IS NOT NULL
)
SELECT place.saga FROM place
WHERE place.saga IS NOT NULL AND ($1::text[] IS NULL OR place.saga = ANY ($1))
LIMIT 500;
