-- The worklist finds parked runs among all messages that lie there.
CREATE INDEX handover_parked_idx ON milepost.handover (run_id) WHERE parked_at IS NOT NULL;
