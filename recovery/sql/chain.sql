-- The chain of hashes over the audit.

-- name: try_lock
SELECT pg_try_advisory_xact_lock(hashtextextended('milepost.audit_chain', 0));

-- name: head
SELECT n, id, at, digest, hash FROM milepost.audit_chain ORDER BY n DESC LIMIT 1;

-- Committed entries without a place. One whose entry is gone stays noted: verifying tells of it.
-- name: unsealed
SELECT u.id, u.at, (extract(epoch FROM a.at) * 1000000)::bigint AS at_us, a.tenant, a.actor, a.kind, a.act, a.outcome,
       a.run_id, a.step, a.reason, a.before::text AS before, a.after::text AS after, a.evidence::text AS evidence
FROM milepost.audit_unsealed AS u
JOIN milepost.audit AS a ON a.id = u.id AND a.at = u.at
ORDER BY u.at, u.id
LIMIT $1;

-- name: seal
INSERT INTO milepost.audit_chain (n, id, at, digest, hash)
SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::timestamptz[], $4::bytea[], $5::bytea[]);

-- name: sealed
DELETE FROM milepost.audit_unsealed AS u
USING unnest($1::uuid[], $2::timestamptz[]) AS d(id, at)
WHERE u.at = d.at AND u.id = d.id;

-- name: waiting
SELECT count(*) AS amount, milepost.clock() - min(at) AS oldest FROM milepost.audit_unsealed;

-- A month counts as gone by its age when all of it has gone: noting one excuses nobody who took a part of it.
-- name: walk
WITH gone AS MATERIALIZED (
    SELECT r.lower_bound, r.upper_bound
    FROM milepost.audit_retired AS r
    JOIN LATERAL milepost.partition_of('audit', r.lower_bound) AS month
        ON month.lower_bound = r.lower_bound AND month.upper_bound = r.upper_bound
    WHERE NOT EXISTS (SELECT FROM milepost.audit AS a WHERE a.at >= r.lower_bound AND a.at < r.upper_bound)
)
SELECT c.n, c.id, c.at, c.digest, c.hash, a.id IS NOT NULL AS there,
       (extract(epoch FROM a.at) * 1000000)::bigint AS at_us, a.tenant, a.actor, a.kind, a.act, a.outcome,
       a.run_id, a.step, a.reason, a.before::text AS before, a.after::text AS after, a.evidence::text AS evidence,
       EXISTS (SELECT FROM gone AS g WHERE c.at >= g.lower_bound AND c.at < g.upper_bound) AS retired
FROM milepost.audit_chain AS c
LEFT JOIN milepost.audit AS a ON a.id = c.id AND a.at = c.at
ORDER BY c.n;

-- name: anchor
SELECT n, hash FROM milepost.audit_retired WHERE n IS NOT NULL ORDER BY n DESC LIMIT 1;

-- name: inserted
SELECT a.id, a.at
FROM milepost.audit AS a
WHERE NOT EXISTS (SELECT FROM milepost.audit_chain AS c WHERE c.id = a.id AND c.at = a.at)
  AND NOT EXISTS (SELECT FROM milepost.audit_unsealed AS u WHERE u.at = a.at AND u.id = a.id)
ORDER BY a.at, a.id
LIMIT 1;

-- name: lost
SELECT u.id, u.at
FROM milepost.audit_unsealed AS u
WHERE NOT EXISTS (SELECT FROM milepost.audit AS a WHERE a.id = u.id AND a.at = u.at)
  AND NOT EXISTS (SELECT FROM milepost.audit_retired AS r
                  JOIN LATERAL milepost.partition_of('audit', r.lower_bound) AS month
                      ON month.lower_bound = r.lower_bound AND month.upper_bound = r.upper_bound
                  WHERE u.at >= r.lower_bound AND u.at < r.upper_bound
                    AND NOT EXISTS (SELECT FROM milepost.audit AS a
                                    WHERE a.at >= r.lower_bound AND a.at < r.upper_bound))
ORDER BY u.at, u.id
LIMIT 1;
