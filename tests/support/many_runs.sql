-- As many runs as a busy week leaves: $1 of them, the last of which began now and the first a week ago. Ids begin with the instant,
-- as UUIDs of version 7 do. One in 51 lives, and one in 20 of those stands in front of a person.

INSERT INTO milepost.run (id, tenant, service, saga, key, definition, shape, policy, input, state, code, wake_at,
    finished_at, correlation_id, created_at, updated_at)
SELECT encode(overlay(decode(md5('r' || n), 'hex') PLACING
           substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3) || '\x70'::bytea FROM 1), 'hex')::uuid,
       CASE WHEN n % 997 = 0 THEN 'acme' ELSE '' END, 'shop', saga, 'k' || n, 1, 's', 'p', '{}',
       CASE WHEN held THEN 'MANUAL_REQUIRED' WHEN live THEN (ARRAY['RUNNING', 'WAITING'])[1 + n / 51 % 2]
            WHEN n % 23 = 0 THEN 'COMPENSATED' WHEN n % 41 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END,
       CASE WHEN held THEN 'BOOKS_CLOSED' END, CASE WHEN live THEN now() + interval '1 day' END,
       CASE WHEN NOT live THEN at + interval '3 seconds' * (1 + n % 7) END, 'c' || n / 3, at,
       at + interval '3 seconds'
FROM (SELECT n, n % 51 = 0 AS live, n % 1020 = 0 AS held, (ARRAY['order', 'notify', 'export', 'campaign', 'report'])[1 + n % 5] AS saga,
             now() - interval '7 days' * (1 - n / $1::float8) AS at
      FROM generate_series(1, $1::int) AS n) AS g;

INSERT INTO milepost.step (run_id, name, n, kind, state, attempt, wake_at, since, started_at, finished_at, code, message)
SELECT r.id, 'charge_card', 1, 'STEP',
       CASE WHEN r.state = 'RUNNING' THEN 'RETRY_PENDING' WHEN r.wake_at IS NOT NULL THEN r.state ELSE 'SUCCEEDED' END,
       1, r.wake_at, r.created_at, r.created_at, r.finished_at, r.code, r.code
FROM milepost.run AS r;

INSERT INTO milepost.run_key (tenant, saga, key, run_id, input_hash)
SELECT tenant, saga, key, id, '\x00' FROM milepost.run;

INSERT INTO milepost.request (id, tenant, service, run_id, what, step, by, reason, state, answer, answered_at, at)
SELECT gen_random_uuid(), tenant, 'shop', id, 'retry', 'charge_card', 'ann', 'again', 'ACCEPTED', 'done', finished_at, created_at
FROM milepost.run WHERE state = 'COMPENSATED' AND saga = 'order';

INSERT INTO milepost.dead_letter (id, scope, event_id, topic, key, headers, stage, code, message, attempts, first_failed_at,
    last_failed_at, recoverable)
SELECT gen_random_uuid(), 'consumer:billing', gen_random_uuid(), 'orders', convert_to('k' || n, 'UTF8'), '[]', 'HANDLE',
       'HANDLER_FAILED', '', 5, now(), now(), true FROM generate_series(1, 500) AS n;

INSERT INTO milepost.workflow (service, saga, version, severity)
VALUES ('shop', 'order', 1, 'CRITICAL'), ('shop', 'report', 1, 'LOW');
