-- Rate limits: what was let through lately, and until when the next ones have been told to wait.

-- One row for each limit of a service, locked by whoever lets something through. spent: calls by the end of a short span
-- of time, in microseconds since 1970. promised: the last appointment that was given, by priority.
CREATE TABLE milepost.rate_limit (
    service text NOT NULL,
    name text NOT NULL,
    spent jsonb NOT NULL DEFAULT '{}',
    promised jsonb NOT NULL DEFAULT '{}',
    closed_until timestamptz,
    PRIMARY KEY (service, name)
) WITH (fillfactor = 50);

-- Until when a rate limit has asked the step to wait; it is let through first when it comes again. No row is rewritten.
ALTER TABLE milepost.step ADD COLUMN limited_until timestamptz;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.rate_limit TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.rate_limit TO milepost_runtime;
    END IF;
END
$$;
