-- Recovery: what drifted from how it should be, what was decided about it, and what looks for it.

-- A row of recovery says which drift of what (subject), as it was seen (observed), and on which level it was decided; rows
-- that have no run are of letters, holds, the outbox and what services inspect. Rows of probes have drift ''. Constant
-- defaults, so no row is rewritten.
ALTER TABLE milepost.reconciliation
    ALTER COLUMN run_id DROP NOT NULL,
    ADD COLUMN service text NOT NULL DEFAULT '',
    ADD COLUMN drift text NOT NULL DEFAULT '',
    ADD COLUMN subject text NOT NULL DEFAULT '',
    ADD COLUMN observed text NOT NULL DEFAULT '',
    ADD COLUMN level smallint,
    ADD CONSTRAINT reconciliation_drift_check CHECK ((drift = '') = (level IS NULL)) NOT VALID,
    ADD CONSTRAINT reconciliation_run_check CHECK (drift <> '' OR run_id IS NOT NULL) NOT VALID;
ALTER TABLE milepost.reconciliation
    VALIDATE CONSTRAINT reconciliation_drift_check,
    VALIDATE CONSTRAINT reconciliation_run_check;

-- One state of one thing is decided once in one way, whoever looks and however often: this is the last line.
CREATE UNIQUE INDEX reconciliation_once_idx ON milepost.reconciliation (drift, subject, observed, decision) WHERE drift <> '';

-- A pass of a service locks its row, so that one process at a time looks. cursors says where the next page of each list
-- begins, inspected when each inspection is due.
CREATE TABLE milepost.reconciler (
    service text PRIMARY KEY,
    passed_at timestamptz,
    cursors jsonb NOT NULL DEFAULT '{}',
    inspected jsonb NOT NULL DEFAULT '{}'
);

-- What is looked for, the oldest first. Few rows are in one of these states at a time.
CREATE INDEX step_unclaimed_idx ON milepost.step (since) WHERE state IN ('PENDING', 'COMPENSATION_PENDING');
CREATE INDEX step_unknown_idx ON milepost.step (since) WHERE state = 'UNKNOWN';
CREATE INDEX wait_since_idx ON milepost.wait (since) WHERE state = 'OPEN';
CREATE INDEX signal_matched_idx ON milepost.signal (matched_at) WHERE matched_at IS NOT NULL;
CREATE INDEX dead_letter_since_idx ON milepost.dead_letter (first_failed_at) WHERE status = 'OPEN';
CREATE INDEX hold_since_idx ON milepost.hold (since);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.reconciler TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE ON milepost.reconciler TO milepost_runtime;
    END IF;
END
$$;
