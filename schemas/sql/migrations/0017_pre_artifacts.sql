-- Artifacts: data that steps have written to the store of MILEPOST_ARTIFACTS, by reference.

-- A row is written with the checkpoint of its step, so there is none without it; an object without a row is left over from
-- a try that did not finish. location counts from the store's root, so that a store can be moved.
CREATE TABLE milepost.artifact (
    tenant text NOT NULL DEFAULT '',
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    name text NOT NULL,
    type text NOT NULL,
    location text NOT NULL,
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    size bigint NOT NULL CHECK (size >= 0),
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (run_id, step, iteration, name)
);
CREATE INDEX artifact_created_idx ON milepost.artifact (created_at);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.artifact TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.artifact TO milepost_runtime;
    END IF;
END
$$;
