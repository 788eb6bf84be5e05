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
