-- Replies are handed over too, with what they say. What could not be acted on is looked at again ever more seldom: look_at
-- says when, after so many tries. Older code knows neither, and looks twice a second.
ALTER TABLE milepost.handover
    ADD COLUMN payload jsonb,
    ADD COLUMN tries integer NOT NULL DEFAULT 0,
    ADD COLUMN look_at timestamptz NOT NULL DEFAULT '-infinity',
    DROP CONSTRAINT handover_kind_check,
    ADD CONSTRAINT handover_kind_check CHECK (kind IN ('work', 'compensation', 'timer', 'resume', 'reply')) NOT VALID;
ALTER TABLE milepost.handover VALIDATE CONSTRAINT handover_kind_check;
