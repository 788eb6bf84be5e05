-- One of everything that the pages beside the runs show (tests/integration/views).

INSERT INTO milepost.run (id, tenant, service, saga, key, definition, shape, policy, input, state, correlation_id, wake_at)
SELECT ('01970000-0000-7000-8000-00000000000' || n)::uuid, tenant, 'shop', saga, 'o-' || n, 1, 's', 'p', '{}', state, 'c',
       milepost.clock()
FROM (VALUES (1, '', 'order', 'RUNNING'), (2, 'acme', 'order', 'RUNNING'), (3, '', 'pay', 'MANUAL_REQUIRED'))
    AS r (n, tenant, saga, state);
INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, expires_at)
VALUES ('01970000-0000-7000-8000-0000000000aa', 'shop', 'host-1', '{work}', '{default,slow}', '{}',
        milepost.clock() + interval '1 minute');
INSERT INTO milepost.step (run_id, name, n, kind, state, wake_at, since, doubt, doubt_at, probes, code, worker, attempt)
SELECT ('01970000-0000-7000-8000-00000000000' || n)::uuid, 'charge', 1, 'STEP', state, milepost.clock() + wake,
       milepost.clock() - interval '1 hour', true, milepost.clock() - interval '30 seconds', 2, 'TIMEOUT',
       CASE WHEN state = 'RECONCILING' THEN '01970000-0000-7000-8000-0000000000aa'::uuid END, 1
FROM (VALUES (1, 'UNKNOWN', interval '40 seconds'), (2, 'RECONCILING', interval '1 minute'),
             (3, 'MANUAL_REQUIRED', interval '1 day')) AS s (n, state, wake);
INSERT INTO milepost.definition (service, saga, version, shape, policy, outline)
VALUES ('shop', 'order', 1, 's', 'p', '{"policy": [{"name": "charge", "probe": [120, 3600]}]}');
INSERT INTO milepost.reconciliation (id, run_id, step, before, evidence, decision, after, actor, reason, correlation_id, at)
SELECT gen_random_uuid(), '01970000-0000-7000-8000-000000000001', 'charge', 'RECONCILING', evidence::jsonb, decision, after,
       'system', 'why', 'c', milepost.clock() - age
FROM (VALUES ('{"answer": "error", "code": "HTTP_503", "message": "away"}', 'NONE', 'UNKNOWN', interval '20 minutes'),
             ('{"answer": "found", "result": {"card": "4242"}}', 'MARK_AS_SUCCESS', 'SUCCEEDED', interval '1 minute'))
    AS c (evidence, decision, after, age);
INSERT INTO milepost.signal (id, tenant, source, event_id, type, key, payload, expires_at, run_id, matched_at)
SELECT ('01980000-0000-7000-8000-00000000000' || n)::uuid, tenant, '/x', n::text, 'paid', 'k', '{"card": "4242"}',
       milepost.clock() + left_, run::uuid, CASE WHEN run IS NOT NULL THEN milepost.clock() END
FROM (VALUES (1, '', interval '1 hour', NULL), (2, 'acme', interval '-1 hour', NULL),
             (3, '', interval '1 hour', '01970000-0000-7000-8000-000000000001')) AS s (n, tenant, left_, run);
INSERT INTO milepost.resource (name, run_id) VALUES ('stock:tea', '01970000-0000-7000-8000-000000000001');
INSERT INTO milepost.resource_queue (name, run_id) VALUES ('stock:tea', '01970000-0000-7000-8000-000000000003');
INSERT INTO milepost.outbox (id, topic, aggregatetype, type, payload) VALUES (gen_random_uuid(), 't', 'x', 'x.y', 'x');
INSERT INTO milepost.replay (id, consumer, topic, apply, begins, ends, live, floor, nexts, counts, at)
VALUES ('01990000-0000-7000-8000-000000000001', 'c', 't', false, '{"0": 10, "1": 0}', '{"0": 20, "1": 5}', '{}',
        milepost.clock(), '{"0": 20, "1": 2}', '{"applied": 9, "missing": 3}', milepost.clock() - interval '2 minutes');
