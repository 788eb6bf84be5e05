-- Fan-out: nodes that start a run for each item of a list.

-- No row has the new kind yet, so every row that there is fits.
ALTER TABLE milepost.step
    DROP CONSTRAINT step_kind_check,
    ADD CONSTRAINT step_kind_check CHECK (kind IN ('STEP', 'TX', 'WAIT', 'UNDO', 'CHOICE', 'LOOP', 'TIMER', 'APPROVAL',
        'COMMAND', 'CHILD', 'EACH')) NOT VALID;
ALTER TABLE milepost.step VALIDATE CONSTRAINT step_kind_check;

-- A list, and how its items stand. Whoever gives items out, or counts what has ended, locks this row, and never that of
-- the run. attempt is that of the step's row in which its items were last given out, next the first that has not been;
-- input_version says which version of their saga's input the items are stored as.
CREATE TABLE milepost.fanout (
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    attempt integer NOT NULL,
    input_version integer NOT NULL,
    total integer NOT NULL,
    next integer NOT NULL DEFAULT 0,
    started integer NOT NULL DEFAULT 0,
    succeeded integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, step, iteration)
) WITH (fillfactor = 50);

-- One item. attempt counts its runs; child_id is the present one, joined says that somebody else had started it.
CREATE TABLE milepost.fanout_item (
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    number integer NOT NULL,
    key text NOT NULL,
    input jsonb NOT NULL,
    state text NOT NULL DEFAULT 'PENDING' CHECK (state IN ('PENDING', 'STARTED', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
    attempt integer NOT NULL DEFAULT 1,
    child_id uuid,
    joined boolean NOT NULL DEFAULT false,
    code text,
    message text,
    PRIMARY KEY (run_id, step, iteration, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX fanout_item_child_idx ON milepost.fanout_item (child_id) WHERE child_id IS NOT NULL;
CREATE INDEX fanout_item_started_idx ON milepost.fanout_item (run_id, step, iteration, number) WHERE state = 'STARTED';
CREATE INDEX fanout_item_failed_idx ON milepost.fanout_item (run_id, step, iteration, number) WHERE state = 'FAILED';

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.fanout, milepost.fanout_item TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.fanout, milepost.fanout_item TO milepost_runtime;
    END IF;
END
$$;
