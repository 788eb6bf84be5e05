-- Partitions (outbox/upkeep.py). Names cannot be parameters, so statements about one partition are
-- written here by format() and then run as they are.

-- name: make_partitions
SELECT milepost.make_partitions($1);

-- name: days_ahead
SELECT coalesce(max(to_date(right(child.relname, 8), 'YYYYMMDD')) - (clock_timestamp() AT TIME ZONE 'UTC')::date, -1)
FROM pg_catalog.pg_inherits JOIN pg_catalog.pg_class AS child ON child.oid = inhrelid
WHERE inhparent = 'milepost.outbox'::regclass AND NOT inhdetachpending AND child.relname ~ '^outbox_[0-9]{8}$';

-- name: interrupted_detaches
SELECT child.relname FROM pg_catalog.pg_inherits JOIN pg_catalog.pg_class AS child ON child.oid = inhrelid
WHERE inhparent = 'milepost.outbox'::regclass AND inhdetachpending
ORDER BY child.relname;

-- Partitions whose last instant is older than $1, and tables that were detached but not dropped any more.
-- name: old_partitions
SELECT class.relname AS name, class.relispartition AS attached
FROM pg_catalog.pg_class AS class
WHERE class.relnamespace = 'milepost'::regnamespace AND class.relkind = 'r' AND class.relname ~ '^outbox_[0-9]{8}$'
  AND (milepost.partition_of('outbox', to_date(right(class.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC'))
          .upper_bound < clock_timestamp() - $1::interval
ORDER BY class.relname;

-- Transactions from this number on may not have been sent; NULL when nobody has relayed yet.
-- name: sent_below
SELECT min(pg_catalog.pg_snapshot_xmin(newest.previous))
FROM (SELECT DISTINCT ON (outbox) previous FROM milepost.outbox_position ORDER BY outbox, epoch DESC, n DESC) AS newest;

-- name: write_needed
SELECT format('SELECT EXISTS (SELECT FROM milepost.%I WHERE xid >= %L::xid8)', $1::text, $2::xid8::text);

-- Whether a transaction, a prepared one included, may still hold rows in a partition that nobody else can see: each
-- that has inserted keeps this lock, or a stronger one, until it ends.
-- name: written_to
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_locks AS held
    WHERE held.locktype = 'relation' AND held.granted
      AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND held.relation = to_regclass(format('milepost.%I', $1::text))
      AND held.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
);

-- name: write_detach
SELECT format('ALTER TABLE milepost.outbox DETACH PARTITION milepost.%I CONCURRENTLY', $1::text);

-- name: write_finalize
SELECT format('ALTER TABLE milepost.outbox DETACH PARTITION milepost.%I FINALIZE', $1::text);

-- name: write_attach
SELECT format('ALTER TABLE milepost.outbox ATTACH PARTITION milepost.%I FOR VALUES FROM (%L) TO (%L)',
              $1::text, bounds.lower_bound, bounds.upper_bound)
FROM milepost.partition_of('outbox', to_date(right($1::text, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC') AS bounds;

-- name: write_drop
SELECT format('DROP TABLE milepost.%I', $1::text);

-- name: lock_timeout
SELECT pg_catalog.set_config('lock_timeout', '3s', false);
