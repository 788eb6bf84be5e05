-- Resource locks: who holds what, and who comes next.

-- The name of the lock that a run was started with. Whether it has it is what milepost.resource says.
ALTER TABLE milepost.run ADD COLUMN resource text;

-- A row while somebody holds the resource: from the start of a run, or when it was passed on to it, until it is final.
CREATE TABLE milepost.resource (
    tenant text NOT NULL DEFAULT '',
    name text NOT NULL,
    run_id uuid NOT NULL,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 70);

-- Who waits, in order of arrival.
CREATE TABLE milepost.resource_queue (
    tenant text NOT NULL DEFAULT '',
    name text NOT NULL,
    n bigint GENERATED ALWAYS AS IDENTITY,
    run_id uuid NOT NULL UNIQUE,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (tenant, name, n)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.resource, milepost.resource_queue TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.resource, milepost.resource_queue TO milepost_runtime;
    END IF;
END
$$;
