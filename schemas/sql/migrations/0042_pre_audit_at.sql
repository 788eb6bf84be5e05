-- The audit is read from its youngest entry on: without an index of time a page of it reads and sorts all there is.

CREATE INDEX audit_at_idx ON milepost.audit (at, id);
