-- What only the owner of the tables may remove (consumers/ageing.py): months of history and audit, and what was asked and
-- found out about runs. Of a run that is still kept nothing goes. Names cannot be parameters, so statements about one
-- partition are written here by format() and then run as they are.

-- name: owns_tables
SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = 'milepost.history'::regclass;

-- name: interrupted_detaches
SELECT parent.relname AS parent, child.relname AS name
FROM pg_catalog.pg_inherits
JOIN pg_catalog.pg_class AS parent ON parent.oid = inhparent
JOIN pg_catalog.pg_class AS child ON child.oid = inhrelid
WHERE inhparent IN ('milepost.history'::regclass, 'milepost.audit'::regclass) AND inhdetachpending
ORDER BY child.relname;

-- Partitions of $1 that ended before $2, and tables that were detached but not dropped any more.
-- name: old_partitions
SELECT class.relname AS name, class.relispartition AS attached
FROM pg_catalog.pg_class AS class
WHERE class.relnamespace = 'milepost'::regnamespace AND class.relkind = 'r'
  AND class.relname ~ ('^' || $1::text || '_[0-9]{6}$')
  AND (milepost.partition_of($1, to_date(right(class.relname, 6), 'YYYYMM')::timestamp AT TIME ZONE 'UTC'))
          .upper_bound <= $2::timestamptz
ORDER BY class.relname;

-- Whether a run that is still kept has a row in the partition. Few runs are so old; each is one look at an index.
-- name: write_needed
SELECT format('SELECT EXISTS (SELECT FROM milepost.run AS r WHERE r.created_at < %L '
              'AND EXISTS (SELECT FROM milepost.%I AS told WHERE told.run_id = r.id))', bounds.upper_bound, $2::text)
FROM milepost.partition_of($1::text, to_date(right($2::text, 6), 'YYYYMM')::timestamp AT TIME ZONE 'UTC') AS bounds;

-- name: write_detach
SELECT format('ALTER TABLE milepost.%I DETACH PARTITION milepost.%I CONCURRENTLY', $1::text, $2::text);

-- name: write_finalize
SELECT format('ALTER TABLE milepost.%I DETACH PARTITION milepost.%I FINALIZE', $1::text, $2::text);

-- name: write_attach
SELECT format('ALTER TABLE milepost.%I ATTACH PARTITION milepost.%I FOR VALUES FROM (%L) TO (%L)',
              $1::text, $2::text, bounds.lower_bound, bounds.upper_bound)
FROM milepost.partition_of($1, to_date(right($2::text, 6), 'YYYYMM')::timestamp AT TIME ZONE 'UTC') AS bounds;

-- name: write_drop
SELECT format('DROP TABLE milepost.%I', $2::text) WHERE $1::text <> '';

-- The chain over the audit (recovery/chain.py) is told which months go by their age, before they go.
-- name: retire
INSERT INTO milepost.audit_retired (lower_bound, upper_bound)
SELECT bounds.lower_bound, bounds.upper_bound
FROM milepost.partition_of('audit', to_date(right($1::text, 6), 'YYYYMM')::timestamp AT TIME ZONE 'UTC') AS bounds
ON CONFLICT DO NOTHING;

-- name: unretire
DELETE FROM milepost.audit_retired AS r
USING milepost.partition_of('audit', to_date(right($1::text, 6), 'YYYYMM')::timestamp AT TIME ZONE 'UTC') AS bounds
WHERE r.lower_bound = bounds.lower_bound AND r.n IS NULL;

-- Links whose entries have all gone go too, from the beginning on; the last of them stays as what the chain goes on from.
-- name: shorten_chain
WITH bounds AS (
    SELECT * FROM milepost.partition_of('audit', to_date(right($1::text, 6), 'YYYYMM')::timestamp AT TIME ZONE 'UTC')
), noted AS (
    DELETE FROM milepost.audit_unsealed AS u
    USING bounds
    WHERE u.at >= bounds.lower_bound AND u.at < bounds.upper_bound
), first AS (
    SELECT coalesce(
        (SELECT min(c.n) FROM milepost.audit_chain AS c
         WHERE NOT EXISTS (SELECT FROM milepost.audit_retired AS r
                           WHERE c.at >= r.lower_bound AND c.at < r.upper_bound)),
        (SELECT max(c.n) FROM milepost.audit_chain AS c)) AS n
), anchored AS (
    UPDATE milepost.audit_retired AS r
    SET n = c.n, hash = c.hash
    FROM milepost.audit_chain AS c, first, bounds
    WHERE c.n = first.n - 1 AND r.lower_bound = bounds.lower_bound
)
DELETE FROM milepost.audit_chain AS c
USING first
WHERE c.n < first.n;

-- An open request stays, however old.
-- name: purge_requests
DELETE FROM milepost.request AS q
WHERE q.ctid >= $1::tid AND q.ctid < $2::tid AND q.answered_at < $3
  AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = q.run_id);

-- name: purge_reconciliations
DELETE FROM milepost.reconciliation AS c
WHERE c.ctid >= $1::tid AND c.ctid < $2::tid AND c.at < $3
  AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = c.run_id);

-- Proposals that were decided on, or that nobody decided on in their time, when their run is gone; and acts on many that
-- have ended. A few at each look, along an index.
-- name: purge_proposals
DELETE FROM milepost.proposal AS p
WHERE p.id IN (SELECT o.id FROM milepost.proposal AS o
               WHERE o.at < milepost.clock() - $1::interval
                 AND coalesce(o.decided_at, o.expires_at) < milepost.clock() - $1::interval
                 AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = o.run_id)
               ORDER BY o.at LIMIT 1000);

-- name: purge_bulks
WITH old AS (
    SELECT b.id FROM milepost.bulk AS b
    WHERE b.at < milepost.clock() - $1::interval AND b.ended_at < milepost.clock() - $1::interval
    ORDER BY b.at LIMIT 20
), gone AS (
    DELETE FROM milepost.bulk_item AS i USING old WHERE i.bulk = old.id
)
DELETE FROM milepost.bulk AS b USING old WHERE b.id = old.id;
