-- How far a long step has come, as its last try said with a heartbeat; the next try reads it.

-- No row is rewritten, and older code neither reads nor writes it.
ALTER TABLE milepost.step ADD COLUMN progress jsonb;
