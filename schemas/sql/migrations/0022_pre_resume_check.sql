-- Looks at what a run rests on, before it goes on after it stood in front of a person.

-- A row for each request that needed one. The answer counts for the run's version that was looked at.
CREATE TABLE milepost.resume_check (
    request_id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL,
    run_id uuid NOT NULL,
    run_version bigint NOT NULL,
    state text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'PASSED', 'REVIEW_REQUIRED', 'RESUME_BLOCKED')),
    reasons jsonb NOT NULL DEFAULT '[]',
    worker uuid,
    fence bigint NOT NULL DEFAULT 0,
    asked_at timestamptz NOT NULL DEFAULT milepost.clock(),
    started_at timestamptz,
    ended_at timestamptz,
    CHECK ((state = 'OPEN') = (ended_at IS NULL)),
    CHECK (worker IS NULL OR state = 'OPEN')
);
CREATE INDEX resume_check_open_idx ON milepost.resume_check (service, asked_at) WHERE state = 'OPEN';
CREATE INDEX resume_check_run_idx ON milepost.resume_check (run_id);

-- The look whose reasons the person has read and takes upon himself.
ALTER TABLE milepost.request ADD COLUMN reviewed uuid;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.resume_check TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.resume_check TO milepost_runtime;
    END IF;
END
$$;
