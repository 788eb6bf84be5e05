-- What a run may take: an instant at which it has to stop, and how long it has been active.

-- Constant defaults, so no row is rewritten; what older code writes leaves them alone.
ALTER TABLE milepost.run
    ADD COLUMN deadline_at timestamptz,
    ADD COLUMN active_for interval NOT NULL DEFAULT '0',
    ADD COLUMN active_since timestamptz;
