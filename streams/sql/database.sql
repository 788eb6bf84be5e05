-- Plumbing of open transactions (streams/database.py).

-- A driver that begins at the first statement only is made to begin by this one.
-- name: begin_now
SELECT 1;

-- name: isolation
SELECT pg_catalog.current_setting('transaction_isolation');
