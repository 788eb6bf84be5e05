-- Retention: when each kind of row was last walked, and since when it is remembered.

-- purged_below is committed before the first row is removed, and never goes back, whatever the settings say later.
CREATE TABLE milepost.retention (
    kind text PRIMARY KEY,
    purged_below timestamptz NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock()
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.retention TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.retention TO milepost_runtime;
    END IF;
END
$$;

-- What `milepost runs list` filters by; most runs have succeeded, and those are found by the primary key.
CREATE INDEX run_key_idx ON milepost.run (key);
CREATE INDEX run_saga_idx ON milepost.run (saga, id);
CREATE INDEX run_correlation_idx ON milepost.run (correlation_id);
CREATE INDEX run_created_idx ON milepost.run (created_at);
CREATE INDEX run_state_idx ON milepost.run (state, id) WHERE state <> 'SUCCEEDED';
