-- Which processes read for a consumer, and when each was heard last: one that is killed says nothing any more, and what
-- nobody reads shows nowhere else in the database. A process that ends in order takes its rows with it.
CREATE TABLE milepost.reader (
    process uuid NOT NULL,
    consumer text NOT NULL CHECK (consumer <> ''),
    service text NOT NULL,
    name text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (process, consumer)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.reader TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.reader TO milepost_runtime;
    END IF;
END
$$;
