-- Entries of the audit. Nobody changes or removes one.

-- name: write
INSERT INTO milepost.audit (id, tenant, actor, kind, act, outcome, run_id, step, reason, before, after, evidence)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::jsonb, $11::jsonb, $12::jsonb);

-- The youngest first. Whoever may see only some sagas sees what is about runs of these; whose details are gone, of none.
-- name: entries
SELECT a.id, a.at, a.tenant, a.actor, a.kind, a.act, a.outcome, a.run_id, r.saga, r.key, a.step, a.reason,
       a.before::text AS before, a.after::text AS after, a.evidence::text AS evidence, c.n AS place
FROM milepost.audit AS a
LEFT JOIN milepost.run AS r ON r.id = a.run_id
LEFT JOIN milepost.audit_chain AS c ON c.id = a.id
WHERE ($1::timestamptz IS NULL OR a.at >= $1)
  AND ($2::interval IS NULL OR a.at >= milepost.clock() - $2)
  AND ($3::timestamptz IS NULL OR a.at < $3)
  AND ($4::text IS NULL OR lower(a.actor) = lower($4))
  AND ($5::text IS NULL OR a.kind = $5)
  AND ($6::text IS NULL OR a.act = $6 OR a.act LIKE $6 || '.%')
  AND ($7::text IS NULL OR a.outcome = $7)
  AND ($8::uuid IS NULL OR a.run_id = $8)
  AND ($9::text[] IS NULL OR a.tenant = ANY ($9))
  AND ($10::text[] IS NULL OR r.saga = ANY ($10))
  AND ($11::timestamptz IS NULL OR (a.at, a.id) < ($11, $12::uuid))
ORDER BY a.at DESC, a.id DESC
LIMIT $13;
