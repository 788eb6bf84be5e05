-- The timelines of the database cluster that were met, and since when: a standby that takes over and a restored backup
-- begin a new one, and what the last one had committed may be missing.
CREATE FUNCTION milepost.timeline_now() RETURNS bigint LANGUAGE sql STABLE
RETURN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;

CREATE TABLE milepost.timeline (
    n bigint PRIMARY KEY,
    since timestamptz NOT NULL
);
INSERT INTO milepost.timeline (n, since) VALUES (milepost.timeline_now(), '-infinity');

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.timeline TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT ON milepost.timeline TO milepost_runtime;
    END IF;
END
$$;
