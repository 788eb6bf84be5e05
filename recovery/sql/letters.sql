-- Letters as acts choose them. The name of a cause is what `milepost dead groups` prints.

-- name: choose
SELECT l.n
FROM milepost.dead_letter AS l
WHERE (cardinality($1::text[]) = 0 OR l.status = ANY ($1))
  AND ($2::text IS NULL OR l.topic = $2)
  AND ($3::text IS NULL OR l.code = $3)
  AND (cardinality($4::bytea[]) = 0 OR l.key = ANY ($4))
  AND ($5::text IS NULL OR l.scope = $5 OR $5 = 'relay' AND l.stage = 'RELAY')
  AND ($6::timestamptz IS NULL OR l.last_failed_at >= $6)
  AND ($7::interval IS NULL OR l.last_failed_at >= milepost.clock() - $7)
  AND ($8::text IS NULL OR l.cause_name = $8)
  AND ($9::text[] IS NULL OR l.tenant = ANY ($9))
  AND l.status = ANY ($10::text[])
  -- Those that wait behind another of their key follow by themselves, unless they are asked for by name.
  AND (l.code <> 'KEY_HELD' OR $3 = 'KEY_HELD')
ORDER BY l.n
LIMIT $11;

-- name: place
SELECT id, stage, tenant, scope, code FROM milepost.dead_letter WHERE n = $1;
