-- Approvals: what persons are asked, which rows wait for it, and what they said.

-- The question of a row and the approvals so far (sagas/questions.py). No row is rewritten; older code neither reads nor
-- writes it.
ALTER TABLE milepost.step ADD COLUMN asked jsonb;

-- Open approvals of flows, for the list of what waits for a person. No row has that kind yet.
CREATE INDEX step_approval_idx ON milepost.step (since) WHERE kind = 'APPROVAL' AND state = 'WAITING';

-- Never changed, and forgotten with its run; the audit has the acts: who said what to a question, of which generation and about which parameters (hash). A person counts once.
CREATE TABLE milepost.approval (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    generation bigint NOT NULL,
    hash text NOT NULL,
    by text NOT NULL CHECK (by <> ''),
    roles text[] NOT NULL DEFAULT '{}',
    decision text NOT NULL CHECK (decision IN ('APPROVED', 'REJECTED')),
    reason text NOT NULL CHECK (reason <> ''),
    at timestamptz NOT NULL DEFAULT milepost.clock()
);
CREATE UNIQUE INDEX approval_once_idx ON milepost.approval (run_id, step, iteration, generation, lower(by), decision);

-- What a person saw when asking, and the roles that the person claims. Older code asks for neither of the two new acts.
ALTER TABLE milepost.request
    ADD COLUMN generation bigint,
    ADD COLUMN hash text,
    ADD COLUMN roles text[] NOT NULL DEFAULT '{}',
    DROP CONSTRAINT request_what_check,
    DROP CONSTRAINT request_check,
    ADD CONSTRAINT request_what_check CHECK (what IN ('retry', 'skip', 'mark_succeeded', 'compensate', 'resume', 'cancel',
        'approve', 'reject')) NOT VALID,
    ADD CONSTRAINT request_check CHECK (
        (what IN ('retry', 'skip', 'mark_succeeded', 'approve', 'reject')) = (step IS NOT NULL)) NOT VALID;
ALTER TABLE milepost.request
    VALIDATE CONSTRAINT request_what_check,
    VALIDATE CONSTRAINT request_check;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.approval TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, DELETE ON milepost.approval TO milepost_runtime;
    END IF;
END
$$;
