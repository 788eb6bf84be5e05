-- Rate limits: one row each, locked in the order of their names by whoever asks.

-- name: add_limits
INSERT INTO milepost.rate_limit (service, name)
SELECT $1, unnest($2::text[])
ON CONFLICT (service, name) DO NOTHING;

-- name: lock_limits
SELECT name, spent::text AS spent, promised::text AS promised, closed_until
FROM milepost.rate_limit
WHERE service = $1 AND name = ANY ($2::text[])
ORDER BY name
FOR UPDATE;

-- In a statement of its own, after the locks: what was read before waiting for them would be too early.
-- name: clock
SELECT milepost.clock();

-- name: keep_limits
UPDATE milepost.rate_limit AS l
SET spent = k.spent, promised = k.promised
FROM jsonb_to_recordset($2::jsonb) AS k(name text, spent jsonb, promised jsonb)
WHERE l.service = $1 AND l.name = k.name;

-- name: close_limits
INSERT INTO milepost.rate_limit (service, name, closed_until)
SELECT $1, unnest($2::text[]), milepost.clock() + $3::interval
ON CONFLICT (service, name) DO UPDATE
SET closed_until = greatest(milepost.rate_limit.closed_until, excluded.closed_until);

-- name: waiting_step
SELECT s.state, s.limited_until <= milepost.clock() AS appointed
FROM milepost.step AS s
WHERE s.run_id = $1 AND s.name = $2 AND s.iteration = $3;
