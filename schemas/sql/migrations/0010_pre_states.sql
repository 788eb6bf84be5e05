-- Runs that are cancelled at a safe boundary, that ran out of time, and that succeeded in part.

-- No row has one of the new states yet, so every row that there is fits; the one scan looks at both.
ALTER TABLE milepost.run
    DROP CONSTRAINT run_state_check,
    DROP CONSTRAINT run_check,
    ADD CONSTRAINT run_state_check CHECK (state IN ('PENDING', 'RUNNING', 'WAITING', 'SUCCEEDED',
        'PARTIALLY_SUCCEEDED', 'FAILED', 'COMPENSATING', 'COMPENSATED', 'COMPENSATION_FAILED', 'MANUAL_REQUIRED',
        'CANCEL_REQUESTED', 'CANCELLED', 'EXPIRED')) NOT VALID,
    ADD CONSTRAINT run_check CHECK ((state IN ('SUCCEEDED', 'PARTIALLY_SUCCEEDED', 'FAILED', 'COMPENSATED',
        'CANCELLED', 'EXPIRED')) = (wake_at IS NULL)) NOT VALID;
ALTER TABLE milepost.run
    VALIDATE CONSTRAINT run_state_check,
    VALIDATE CONSTRAINT run_check;
