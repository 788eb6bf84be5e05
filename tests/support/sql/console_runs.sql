-- Runs as operators meet them, for tests of the command line. Times count back from the database's clock.

INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, expires_at) VALUES
    ('00000000-0000-7000-8000-0000000000aa', 'shop', 'host-1:4711', '{worker}', '{default}', '{order/1}',
     milepost.clock() + interval '1 hour');

INSERT INTO milepost.run (id, tenant, service, saga, key, definition, shape, policy, input, state, code, cause, wake_at,
    correlation_id, traceparent, created_at, updated_at, finished_at) VALUES
    ('01970000-0000-7000-8000-000000000001', '', 'shop', 'order', 'o-1', 1, 's', 'p', '{}', 'WAITING', NULL, NULL,
     milepost.clock() + interval '1 day', 'c-1', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
     milepost.clock() - interval '10 minutes', milepost.clock() - interval '3 minutes', NULL),
    ('01970000-0000-7000-8000-000000000002', '', 'shop', 'order', 'o-2', 1, 's', 'p', '{}', 'COMPENSATED', NULL,
     'CARRIER_CLOSED', NULL, 'c-2', NULL, milepost.clock() - interval '2 hours',
     milepost.clock() - interval '1 hour', milepost.clock() - interval '1 hour'),
    ('01970000-0000-7000-8000-000000000003', '', 'shop', 'order', 'o-3', 1, 's', 'p', '{}', 'MANUAL_REQUIRED',
     'OUTCOME_UNKNOWN', NULL, milepost.clock() + interval '1 day', 'c-3', NULL, milepost.clock() - interval '5 hours',
     milepost.clock() - interval '4 hours', NULL),
    ('01970000-0000-7000-8000-000000000004', '', 'shop', 'order', 'o-4', 1, 's', 'p', '{}', 'RUNNING', NULL, NULL,
     milepost.clock() + interval '1 day', 'c-1', NULL, milepost.clock() - interval '12 seconds', milepost.clock(),
     NULL),
    ('0197ffff-0000-7000-8000-000000000005', '', 'shop', 'order', 'o-5', 1, 's', 'p', '{}', 'FAILED', NULL,
     'NO_GIFT_PAPER', NULL, 'c-5', NULL, milepost.clock() - interval '3 days',
     milepost.clock() - interval '3 days' + interval '4 seconds',
     milepost.clock() - interval '3 days' + interval '4 seconds'),
    ('0197ffff-0000-7000-8000-000000000006', 'acme', 'shop', 'refund', 'r-1', 1, 's', 'p', '{}', 'PENDING', NULL, NULL,
     milepost.clock() + interval '1 day', 'c-6', NULL, milepost.clock(), milepost.clock(), NULL),
    ('0197ffff-0000-7000-8000-000000000007', 'duff', 'shop', 'refund', 'r-1', 1, 's', 'p', '{}', 'PENDING', NULL, NULL,
     milepost.clock() + interval '1 day', 'c-7', NULL, milepost.clock(), milepost.clock(), NULL);

INSERT INTO milepost.run_key (tenant, saga, key, run_id, input_hash, outcome)
SELECT tenant, saga, key, id, '\x00', CASE WHEN finished_at IS NOT NULL THEN state END FROM milepost.run;
INSERT INTO milepost.run_key (tenant, saga, key, run_id, input_hash, outcome) VALUES
    ('', 'order', 'o-0', '01960000-0000-7000-8000-000000000000', '\x00', 'SUCCEEDED');

INSERT INTO milepost.step (run_id, name, n, kind, state, undo_of, attempt, worker, wake_at, doubt, code, message,
    finish_no, probes, since) VALUES
    ('01970000-0000-7000-8000-000000000001', 'reserve_stock', 0, 'STEP', 'SUCCEEDED', NULL, 1, NULL, NULL, false, NULL,
     NULL, 1, 0, milepost.clock() - interval '10 minutes'),
    ('01970000-0000-7000-8000-000000000001', 'charge_card', 1, 'STEP', 'SUCCEEDED', NULL, 1, NULL, NULL, false, NULL,
     NULL, 2, 0, milepost.clock() - interval '7 minutes'),
    ('01970000-0000-7000-8000-000000000001', 'ship', 2, 'STEP', 'SUCCEEDED', NULL, 2, NULL, NULL, false,
     'CARRIER_BUSY', NULL, 3, 0, milepost.clock() - interval '3 minutes'),
    ('01970000-0000-7000-8000-000000000001', 'delivered', 3, 'WAIT', 'WAITING', NULL, 0, NULL,
     '2126-12-02 18:13:04Z', false, NULL, NULL, NULL, 0, milepost.clock() - interval '3 minutes'),
    ('01970000-0000-7000-8000-000000000002', 'reserve_stock', 0, 'STEP', 'SUCCEEDED', NULL, 1, NULL, NULL, false, NULL,
     NULL, 1, 0, milepost.clock() - interval '110 minutes'),
    ('01970000-0000-7000-8000-000000000002', 'ship', 1, 'STEP', 'FAILED', NULL, 5, NULL, NULL, false, 'CARRIER_CLOSED',
     'the carrier has closed its books until January', 2, 0, milepost.clock() - interval '100 minutes'),
    ('01970000-0000-7000-8000-000000000002', 'release_stock', 2, 'UNDO', 'COMPENSATED', 'reserve_stock', 1, NULL, NULL,
     false, NULL, NULL, 3, 0, milepost.clock() - interval '1 hour'),
    ('01970000-0000-7000-8000-000000000003', 'charge_card', 0, 'STEP', 'MANUAL_REQUIRED', NULL, 1, NULL,
     milepost.clock() + interval '1 day', true, 'OUTCOME_UNKNOWN', E'no reply\x1b[31m within 30 s', NULL, 4,
     milepost.clock() - interval '4 hours'),
    ('01970000-0000-7000-8000-000000000004', 'reserve_stock', 0, 'STEP', 'RUNNING', NULL, 2,
     '00000000-0000-7000-8000-0000000000aa', milepost.clock() + interval '1 minute', false, 'TIMEOUT', NULL, NULL, 0,
     milepost.clock() - interval '5 seconds'),
    ('0197ffff-0000-7000-8000-000000000005', 'gift_wrap', 0, 'STEP', 'FAILED', NULL, 5, NULL, NULL, true,
     'NO_GIFT_PAPER', NULL, 1, 0, milepost.clock() - interval '3 days');

INSERT INTO milepost.reconciliation (id, run_id, step, before, evidence, decision, after, actor, reason,
    correlation_id) VALUES
    ('01970000-0000-7000-8000-00000000000a', '01970000-0000-7000-8000-000000000001', 'charge_card', 'UNKNOWN', '{}',
     'MARK_AS_SUCCESS', 'SUCCEEDED', 'system', 'the probe found it', 'c-1');

INSERT INTO milepost.history (run_id, n, at, event, step, attempt, data) VALUES
    ('01970000-0000-7000-8000-000000000001', 1, milepost.clock() - interval '100 seconds', 'run.started', NULL, NULL,
     '{}'),
    ('01970000-0000-7000-8000-000000000001', 2, milepost.clock() - interval '99.5 seconds', 'step.started',
     'charge_card', 1, '{}'),
    ('01970000-0000-7000-8000-000000000001', 3, milepost.clock() - interval '70 seconds', 'step.unknown',
     'charge_card', 1, '{"code": "TIMEOUT", "message": "no answer from http://bank/charges within 2 s"}'),
    ('01970000-0000-7000-8000-000000000001', 4, milepost.clock() - interval '60 seconds', 'step.completed',
     'charge_card', 1, '{"by": "probe"}'),
    ('01970000-0000-7000-8000-000000000004', 1, '2026-11-29T20:00:00Z', 'step.retry_scheduled', 'reserve_stock', 1,
     '{"at": "2026-11-29T20:00:02.5+00:00", "code": "TIMEOUT"}'),
    ('01970000-0000-7000-8000-000000000004', 2, '2026-11-29T20:00:02Z', 'made.up', NULL, NULL, '{"at": "noon"}');
