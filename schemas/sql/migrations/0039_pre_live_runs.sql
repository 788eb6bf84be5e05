-- Live runs by workflow and state are counted from this index alone: with an index that has only their wake_at, each of them is a
-- page of the table. What it holds changes only when the state does, or the run ends, which no other index lets stay in place
-- either.
CREATE INDEX run_live_idx ON milepost.run (saga, state) INCLUDE (tenant, created_at) WHERE wake_at IS NOT NULL;
