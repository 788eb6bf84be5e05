-- Ages: what shows, without a scan, since when the oldest of everything has been waiting.

-- What fails and is tried again, and what nobody waits for, the oldest first. Every change of a step's state writes its row
-- and its other indexes anew already; here it has an entry only while it waits for its next try.
CREATE INDEX step_retry_idx ON milepost.step (since) WHERE state = 'RETRY_PENDING';
CREATE INDEX signal_received_idx ON milepost.signal (received_at) WHERE matched_at IS NULL;

-- When the process last said that it is alive, several times in a lease: who is gone shows before its lease ends. Older code
-- does not say it, and is judged by its lease alone. No row is rewritten.
ALTER TABLE milepost.worker ADD COLUMN seen_at timestamptz;
