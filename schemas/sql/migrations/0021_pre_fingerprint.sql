-- Fingerprints of runs: what a run rests on, so that an equal one may be used instead of a new one.

-- current: the run stands for its fingerprint. At most one does; one that has ended without success, or is gone, makes room.
CREATE TABLE milepost.fingerprint (
    run_id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    saga text NOT NULL,
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    parts jsonb NOT NULL,
    current boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT milepost.clock()
);
CREATE UNIQUE INDEX fingerprint_current_key ON milepost.fingerprint (tenant, saga, sha256) WHERE current;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.fingerprint TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.fingerprint TO milepost_runtime;
    END IF;
END
$$;
