-- What the console reads fast at a million runs, and what people keep there.

-- Ended runs of a stretch of time. A summary of each megabyte, which costs a writer next to nothing and no row its place: it is
-- touched only when a run ends, whose state changes too.
CREATE INDEX run_finished_idx ON milepost.run USING brin (finished_at timestamptz_minmax_multi_ops) WITH (pages_per_range = 32);
-- Runs of one tenant, the youngest first; without tenants it is empty.
CREATE INDEX run_tenant_idx ON milepost.run (tenant, id) WHERE tenant <> '';
CREATE INDEX request_answered_idx ON milepost.request (answered_at) WHERE answered_at IS NOT NULL;
CREATE INDEX reconciliation_at_idx ON milepost.reconciliation USING brin (at);

-- What has happened, by five minutes (bucket is their beginning): what is started, settled, run.STATE or act.NAME; seconds is how
-- long it took in all. A row with what tallied says that its bucket was counted.
CREATE TABLE milepost.tally (
    bucket timestamptz NOT NULL,
    tenant text NOT NULL,
    saga text NOT NULL,
    what text NOT NULL,
    amount bigint NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (bucket, tenant, saga, what)
);
CREATE INDEX tally_place_idx ON milepost.tally (bucket) WHERE what = 'tallied';

-- Filters that people have saved, each for himself.
CREATE TABLE milepost.saved_filter (
    owner text NOT NULL,
    page text NOT NULL,
    name text NOT NULL CHECK (name <> '' AND length(name) <= 60),
    query text NOT NULL CHECK (length(query) <= 2000),
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (owner, page, name)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.tally, milepost.saved_filter TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.tally, milepost.saved_filter TO milepost_runtime;
    END IF;
END
$$;
