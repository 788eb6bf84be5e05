-- Repairs, each on condition that what was observed is still so; and the rows that say what was decided.

-- name: now
SELECT milepost.clock();

-- A lock that is not had soon means that somebody is at work there.
-- name: hardly_wait
SET LOCAL lock_timeout = '2s';

-- Nothing where the same was decided before. Whoever does so at the same moment is waited for.
-- name: insert_reconciliation
INSERT INTO milepost.reconciliation (id, tenant, service, run_id, step, iteration, before, evidence, decision, after, actor,
    reason, correlation_id, drift, subject, observed, level)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::jsonb, $9, $10, $11, $12, $13, $14, $15, $16, $17)
ON CONFLICT (drift, subject, observed, decision) WHERE drift <> '' DO NOTHING
RETURNING id;

-- name: insert_audit
INSERT INTO milepost.audit (id, tenant, actor, kind, act, run_id, step, reason, before, after, evidence)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10::jsonb, $11::jsonb);

-- The waker takes the row up at once, and its state machine decides. $7 is the drift: a wait is woken only when its event
-- is there, for else it would time out; a worker's row only while its lease has ended.
-- name: wake_step
UPDATE milepost.step AS s
SET wake_at = milepost.clock()
WHERE s.run_id = $1 AND s.name = $2 AND s.iteration = $3 AND s.state = $4 AND s.fence = $5 AND s.generation = $6
  AND s.wake_at > milepost.clock()
  AND CASE $7::text
      WHEN 'WORKER_LOST' THEN s.worker IS NOT NULL AND NOT EXISTS (
          SELECT FROM milepost.worker AS w WHERE w.id = s.worker AND w.expires_at > milepost.clock())
      WHEN 'SIGNAL_PRESENT' THEN EXISTS (
          SELECT FROM milepost.wait AS w
          WHERE w.run_id = s.run_id AND w.step = s.name AND w.iteration = s.iteration AND w.generation = s.generation
            AND w.state = 'MATCHED')
      ELSE s.worker IS NULL AND s.state IN ('PENDING', 'COMPENSATION_PENDING', 'UNKNOWN')
      END
RETURNING true;

-- name: wake_run
UPDATE milepost.run AS r
SET wake_at = milepost.clock()
WHERE r.id = $1 AND r.version = $2 AND r.state = $3 AND r.wake_at > milepost.clock()
  AND NOT EXISTS (SELECT FROM milepost.step AS s WHERE s.run_id = r.id AND s.wake_at IS NOT NULL)
RETURNING true;

-- The first of the queue looks at once, and gives itself the lock that nobody holds.
-- name: wake_next
UPDATE milepost.run AS r
SET wake_at = milepost.clock()
WHERE r.id = $4 AND r.state = 'PENDING' AND r.wake_at > milepost.clock()
  AND EXISTS (SELECT FROM milepost.resource AS h WHERE h.tenant = $1 AND h.name = $2 AND h.run_id = $3)
  AND NOT EXISTS (SELECT FROM milepost.run AS o WHERE o.id = $3 AND o.wake_at IS NOT NULL)
RETURNING true;

-- The lock of a resource's name, as who passes it on takes it (consumers/sql/resources.sql).
-- name: lock_name
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(chr(31), 'milepost.resource', $1::text, $2::text), 0));

-- name: give_back
DELETE FROM milepost.resource AS h
WHERE h.tenant = $1 AND h.name = $2 AND h.run_id = $3
  AND NOT EXISTS (SELECT FROM milepost.run AS o WHERE o.id = $3 AND o.wake_at IS NOT NULL)
  AND NOT EXISTS (SELECT FROM milepost.resource_queue AS q WHERE q.tenant = h.tenant AND q.name = h.name)
RETURNING true;

-- name: lock_hold
SELECT true FROM milepost.hold WHERE scope = $1 AND topic = $2 AND key = $3 AND since = $4 FOR UPDATE;

-- name: release_hold
DELETE FROM milepost.hold AS h
WHERE h.scope = $1 AND h.topic = $2 AND h.key = $3
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS l
                  WHERE l.scope = h.scope AND l.topic = h.topic AND l.held_key = h.key
                    AND l.status IN ('OPEN', 'RETRY_PENDING'))
RETURNING true;

-- name: letter_unchanged
SELECT true FROM milepost.dead_letter WHERE n = $1 AND status = 'OPEN' AND attempts = $2 AND code = $3 FOR UPDATE;

-- A service's own row, which a pass locks; a second process finds none to lock.
-- name: make_reconciler
INSERT INTO milepost.reconciler (service) VALUES ($1) ON CONFLICT DO NOTHING;

-- name: lead
SELECT cursors::text AS cursors, passed_at, milepost.clock() AS now
FROM milepost.reconciler
WHERE service = $1 AND (passed_at IS NULL OR passed_at <= milepost.clock() - $2::interval OR passed_at > milepost.clock())
FOR UPDATE SKIP LOCKED;

-- name: passed
UPDATE milepost.reconciler SET passed_at = milepost.clock(), cursors = $2::jsonb WHERE service = $1;

-- An inspection that is due is taken by who moves its time on; one that dies looks again when it is due next.
-- name: take_inspection
UPDATE milepost.reconciler
SET inspected = jsonb_set(inspected, ARRAY[$2::text], to_jsonb(milepost.clock() + $3::interval))
WHERE service = $1
  AND (inspected ->> $2 IS NULL OR (inspected ->> $2)::timestamptz <= milepost.clock()
       OR (inspected ->> $2)::timestamptz > milepost.clock() + $3::interval)
RETURNING true;
