-- Operations of participants. An insert waits for whoever is at the same operation in another transaction; what that
-- one committed is read by the next statement, whose snapshot is newer.

-- name: begin
INSERT INTO milepost.barrier (consumer, tenant, run, step, direction, outcome, command, fingerprint)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING
RETURNING true;

-- name: find
SELECT outcome, fingerprint, reply_type, reply_key, reply_payload, reply_headers
FROM milepost.barrier
WHERE consumer = $1 AND tenant = $2 AND run = $3 AND step = $4 AND direction = $5;

-- of a batch -----------------------------------------------------------------------------------------
-- In one order everywhere, so that no two batches wait for each other.

-- name: begin_many
INSERT INTO milepost.barrier (consumer, tenant, run, step, direction, outcome, command, fingerprint)
SELECT $1, tenant, run, step, direction, 'PENDING', command, fingerprint
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[])
    AS wanted (tenant, run, step, direction, command, fingerprint)
ORDER BY tenant, run, step, direction
ON CONFLICT DO NOTHING
RETURNING tenant, run, step, direction;

-- A row a statement, all of them in one message: a plan for many that was made while the table was small would read all
-- of it later on.
-- name: finish
UPDATE milepost.barrier
SET outcome = $6, reply_type = $7, reply_key = $8, reply_payload = $9, reply_headers = $10
WHERE consumer = $1 AND tenant = $2 AND run = $3 AND step = $4 AND direction = $5 AND outcome = 'PENDING';

-- name: withdraw
DELETE FROM milepost.barrier
WHERE consumer = $1 AND tenant = $2 AND run = $3 AND step = $4 AND direction = $5 AND outcome = 'PENDING';

-- A function's savepoint is left when the next one is set, in the same message.
-- name: first_point
SAVEPOINT milepost_answer;

-- name: next_point
RELEASE SAVEPOINT milepost_answer; SAVEPOINT milepost_answer;

-- name: back
ROLLBACK TO SAVEPOINT milepost_answer;
