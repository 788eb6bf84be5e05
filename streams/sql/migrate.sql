-- Schema versions (streams/migrate.py).

-- name: lock_migrations
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('milepost.migrate', 0));

-- name: has_migrations
SELECT pg_catalog.to_regclass('milepost.migration') IS NOT NULL;

-- name: load_version
SELECT coalesce(max(number), 0) FROM milepost.migration;

-- name: record_migration
INSERT INTO milepost.migration (number, name) VALUES ($1, $2);

-- name: make_partitions
SELECT milepost.make_partitions($1);
