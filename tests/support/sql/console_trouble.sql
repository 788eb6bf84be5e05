-- Everything that `milepost doctor` has a word for, on top of console_runs.sql.

DO $$
DECLARE
    part text;
BEGIN
    FOR part IN
        SELECT c.relname
        FROM generate_series(2, 8) AS d(n),
             LATERAL milepost.partition_of('outbox', clock_timestamp() + make_interval(days => d.n)) AS p
        JOIN pg_class AS c ON c.oid = to_regclass(format('milepost.%I', p.name))
    LOOP
        EXECUTE format('DROP TABLE milepost.%I', part);
    END LOOP;
END
$$;

UPDATE milepost.worker SET expires_at = milepost.clock() - interval '1 minute';

INSERT INTO milepost.outbox (id, topic, aggregatetype, type, payload, created_at) VALUES
    (gen_random_uuid(), 't', 'x', 'x.y', '\x00', clock_timestamp() - interval '5 minutes');

INSERT INTO milepost.step (run_id, name, n, kind, state, undo_of, wake_at, since) VALUES
    ('01970000-0000-7000-8000-000000000004', 'charge_card', 1, 'STEP', 'UNKNOWN', NULL,
     milepost.clock() + interval '1 minute', milepost.clock() - interval '1 hour'),
    ('01970000-0000-7000-8000-000000000003', 'refund', 1, 'UNDO', 'COMPENSATION_FAILED', 'charge_card',
     milepost.clock() + interval '1 day', milepost.clock() - interval '1 hour'),
    ('01970000-0000-7000-8000-000000000004', 'overdue', 2, 'STEP', 'PENDING', NULL,
     milepost.clock() - interval '2 minutes', milepost.clock() - interval '1 hour');

INSERT INTO milepost.dead_letter (id, scope, event_id, topic, headers, stage, code, message, attempts, first_failed_at,
    last_failed_at, recoverable) VALUES
    (gen_random_uuid(), 'consumer:billing', gen_random_uuid(), 'orders', '\x', 'HANDLE', 'KeyError', 'x', 3,
     milepost.clock() - interval '50 minutes', milepost.clock(), true),
    (gen_random_uuid(), 'relay:topic', gen_random_uuid(), 'nowhere', '{}', 'RELAY', 'TOPIC_MISSING', 'x', 1,
     milepost.clock() - interval '1 hour', milepost.clock(), true),
    (gen_random_uuid(), 'relay:topic', gen_random_uuid(), 'nowhere', '{}', 'RELAY', 'TOPIC_MISSING', 'x', 1,
     milepost.clock() - interval '1 minute', milepost.clock(), true),
    (gen_random_uuid(), 'relay:key', gen_random_uuid(), 'orders', '{}', 'RELAY', 'TOO_LARGE', 'x', 1,
     milepost.clock() - interval '1 hour', milepost.clock(), true);
