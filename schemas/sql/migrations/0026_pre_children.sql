-- Children: runs that a run has started or found, and waits for.

-- A row says what became of the child of a row of milepost.step: the run, or why there is none. state is how the child
-- ended, which stays when the child itself is gone; joined says that somebody else had started it.
CREATE TABLE milepost.child_run (
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    attempt integer NOT NULL,
    child_id uuid,
    key text NOT NULL DEFAULT '',
    joined boolean NOT NULL DEFAULT false,
    state text,
    code text,
    message text,
    PRIMARY KEY (run_id, step, iteration, attempt)
);
CREATE INDEX child_run_child_idx ON milepost.child_run (child_id) WHERE child_id IS NOT NULL;

-- Somebody waits for the end of the run. Older code does not tell of it, and whoever waits looks by itself then.
ALTER TABLE milepost.run ADD COLUMN watched boolean NOT NULL DEFAULT false;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.child_run TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.child_run TO milepost_runtime;
    END IF;
END
$$;
