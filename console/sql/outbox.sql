-- What operators see of the relay (console/outbox.py), and parked events as they choose them (console/unpark.py).

-- name: relay
SELECT lease.owner, lease.expires_at > milepost.clock() AS leads, lease.epoch, at.position, at.since,
       at.system_identifier = control.system_identifier AS at_home
FROM pg_catalog.pg_control_system() AS control
LEFT JOIN milepost.outbox_lease AS lease ON lease.outbox = 'outbox'
LEFT JOIN LATERAL (
    SELECT format('%s %s %s', p.previous, p.current, p.last_seq) AS position, clock_timestamp() - p.at AS since,
           p.system_identifier
    FROM milepost.outbox_position AS p WHERE p.outbox = 'outbox' ORDER BY p.epoch DESC, p.n DESC LIMIT 1
) AS at ON true;

-- name: holds
SELECT scope, topic, count(*) AS amount, min(reason) AS reason, max(milepost.clock() - since) AS oldest
FROM milepost.hold WHERE scope IN ('relay:topic', 'relay:key')
GROUP BY scope, topic
ORDER BY scope DESC, topic;

-- The first ones by number, so that they can be named.
-- name: first_letters
SELECT topic, code, (array_agg(n ORDER BY n))[1:3] AS numbers,
       count(*) FILTER (WHERE status = 'RETRY_PENDING') AS asked
FROM milepost.dead_letter
WHERE status IN ('OPEN', 'RETRY_PENDING') AND stage = 'RELAY'
GROUP BY topic, code
ORDER BY topic, code;

-- name: find_letter
SELECT id, n, topic, tenant, code FROM milepost.dead_letter WHERE stage = 'RELAY' AND (n = $1::bigint OR id = $2::uuid);

-- Those that wait behind another of their key follow by themselves.
-- name: choose_letters
SELECT id, n, topic, tenant, code FROM milepost.dead_letter
WHERE stage = 'RELAY' AND status = 'OPEN' AND recoverable
  AND ($1::text IS NULL OR topic = $1) AND ($2::text IS NULL OR code = $2) AND ($3::bytea IS NULL OR key = $3)
  AND (code <> 'KEY_HELD' OR $2 = 'KEY_HELD')
ORDER BY n;

-- name: letter_state
SELECT status, code, message FROM milepost.dead_letter WHERE id = $1;
