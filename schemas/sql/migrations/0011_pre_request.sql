-- Requests: what a person wants done with a run. Whoever asks needs only the database; the orchestrator, which has the
-- definition, carries it out through the state machine and answers in the same transaction.

-- An answered row stays, as the record of who wanted what and why. fence is that of the step as the person saw it:
-- where it has risen, somebody has tried since, and the person decides again.
CREATE TABLE milepost.request (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL,
    run_id uuid NOT NULL,
    what text NOT NULL CHECK (what IN ('retry', 'skip', 'mark_succeeded', 'compensate', 'resume', 'cancel')),
    step text,
    iteration text NOT NULL DEFAULT '',
    fence bigint,
    result jsonb,
    undo boolean,
    did_not_happen boolean NOT NULL DEFAULT false,
    by text NOT NULL CHECK (by <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    state text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'ACCEPTED', 'REFUSED')),
    answer text,
    answered_at timestamptz,
    CHECK ((what IN ('retry', 'skip', 'mark_succeeded')) = (step IS NOT NULL)),
    CHECK ((what = 'cancel') = (undo IS NOT NULL)),
    CHECK (result IS NULL OR what = 'mark_succeeded'),
    CHECK ((state = 'OPEN') = (answered_at IS NULL)),
    CHECK ((answered_at IS NULL) = (answer IS NULL))
);
CREATE INDEX request_open_idx ON milepost.request (service, id) WHERE state = 'OPEN';
CREATE INDEX request_run_idx ON milepost.request (run_id);

-- What stands in front of a person, the oldest first: few of all live rows.
CREATE INDEX step_person_idx ON milepost.step (since) WHERE state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED');

-- What was asked cannot be changed afterwards, only answered.
DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.request TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE (state, answer, answered_at) ON milepost.request TO milepost_runtime;
    END IF;
END
$$;
