-- Nested shapes: rows of choices and loops, and runs that fail without undo while branches are still under way.

-- No row has one of the new kinds yet, so every row that there is fits.
ALTER TABLE milepost.step
    DROP CONSTRAINT step_kind_check,
    ADD CONSTRAINT step_kind_check CHECK (kind IN ('STEP', 'TX', 'WAIT', 'UNDO', 'CHOICE', 'LOOP', 'TIMER', 'APPROVAL',
        'COMMAND', 'CHILD', 'EACH')) NOT VALID;
ALTER TABLE milepost.step VALIDATE CONSTRAINT step_kind_check;
ALTER TABLE milepost.run ADD COLUMN no_undo boolean NOT NULL DEFAULT false;
