-- How soon a run's work is taken: decided at its start, and carried by the topic of its work.

-- A constant default, so no row is rewritten; what older code starts is NORMAL.
ALTER TABLE milepost.run ADD COLUMN priority text NOT NULL DEFAULT 'NORMAL';
-- Not checked against the rows there are, which all have the default: no scan under the lock.
ALTER TABLE milepost.run ADD CONSTRAINT run_priority_check CHECK (priority IN ('HIGH', 'NORMAL', 'LOW')) NOT VALID;
