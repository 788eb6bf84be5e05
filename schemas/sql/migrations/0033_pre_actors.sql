-- Who acts, and what was not let through: the audit says of every entry what kind of actor it was and what became of it;
-- a request of high consequence waits for a second person; and how severe a workflow is can be read without its code.

-- What older code writes is a person's and was done; the system's own entries of older code are told by their name.
ALTER TABLE milepost.audit
    ADD COLUMN kind text NOT NULL DEFAULT 'PERSON' CHECK (kind IN ('SYSTEM', 'PERSON', 'AGENT')),
    ADD COLUMN outcome text NOT NULL DEFAULT 'DONE' CHECK (outcome IN ('DONE', 'HELD', 'REFUSED'));

-- run_version: it is carried out only while the run has this version. HELD: it would be accepted, and waits for a second
-- person, who is not the first.
ALTER TABLE milepost.request
    ADD COLUMN kind text NOT NULL DEFAULT 'PERSON' CHECK (kind IN ('SYSTEM', 'PERSON', 'AGENT')),
    ADD COLUMN run_version bigint,
    ADD COLUMN proposal uuid,
    ADD COLUMN held_at timestamptz,
    ADD COLUMN confirmed_by text CHECK (confirmed_by <> ''),
    ADD COLUMN confirmed_at timestamptz,
    ADD COLUMN confirm_reason text,
    DROP CONSTRAINT request_state_check,
    DROP CONSTRAINT request_check3,
    ADD CONSTRAINT request_state_check CHECK (state IN ('OPEN', 'HELD', 'ACCEPTED', 'REFUSED')) NOT VALID,
    ADD CONSTRAINT request_answered_check CHECK ((state IN ('OPEN', 'HELD')) = (answered_at IS NULL)) NOT VALID,
    ADD CONSTRAINT request_second_check CHECK (lower(confirmed_by) <> lower(by)) NOT VALID;
ALTER TABLE milepost.request
    VALIDATE CONSTRAINT request_state_check,
    VALIDATE CONSTRAINT request_answered_check,
    VALIDATE CONSTRAINT request_second_check;
CREATE INDEX request_held_idx ON milepost.request (held_at) WHERE state = 'HELD';

-- What processes know of their sagas and people are to see; of several versions the newest counts.
CREATE TABLE milepost.workflow (
    service text NOT NULL,
    saga text NOT NULL,
    version integer NOT NULL,
    severity text NOT NULL CHECK (severity IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')),
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (service, saga)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.workflow TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE ON milepost.workflow TO milepost_runtime;
        GRANT UPDATE (held_at, confirmed_by, confirmed_at, confirm_reason) ON milepost.request TO milepost_runtime;
    END IF;
END
$$;
