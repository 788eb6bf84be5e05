-- Children: which run a row waits for, and which rows wait for a run.

-- Whoever writes the row decides what becomes of the child: two at once are told apart by the key.
-- name: take_child
INSERT INTO milepost.child_run (run_id, step, iteration, attempt) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
RETURNING true;

-- name: find_child
SELECT k.child_id, k.joined,
       k.child_id IS NULL OR k.code IS NOT NULL OR k.state IS NOT NULL OR c.finished_at IS NOT NULL AS over
FROM milepost.child_run AS k
LEFT JOIN milepost.run AS c ON c.id = k.child_id
WHERE k.run_id = $1 AND k.step = $2 AND k.iteration = $3 AND k.attempt = $4;

-- How often the row has had a child that ended badly: the next one has a key of its own.
-- name: ended_badly
SELECT count(*) FROM milepost.child_run AS k
LEFT JOIN milepost.run AS c ON c.id = k.child_id
WHERE k.run_id = $1 AND k.step = $2 AND k.iteration = $3 AND k.attempt < $4
  AND coalesce(k.state, CASE WHEN c.finished_at IS NOT NULL THEN c.state END)
      IN ('FAILED', 'COMPENSATED', 'CANCELLED', 'EXPIRED');

-- name: child_started
UPDATE milepost.child_run SET child_id = $5, key = $6, joined = $7, state = $8
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND attempt = $4;

-- name: child_refused
UPDATE milepost.child_run SET code = $5, message = $6
WHERE run_id = $1 AND step = $2 AND iteration = $3 AND attempt = $4;

-- Who changes the run at the same moment has to decide anew, and then tells of its end.
-- name: watch
UPDATE milepost.run SET watched = true, version = version + 1 WHERE id = $1 AND NOT watched AND finished_at IS NULL;

-- How a run has ended, also one that is gone; NULL while it is under way.
-- name: outcome
SELECT outcome FROM milepost.run_key WHERE tenant = $1 AND saga = $2 AND key = $3;

-- name: child_ended
UPDATE milepost.child_run AS k SET state = c.state
FROM milepost.run AS c
WHERE k.child_id = ANY ($1::uuid[]) AND c.id = k.child_id AND c.finished_at IS NOT NULL AND k.state IS NULL;

-- name: parents
SELECT k.run_id, k.step, k.iteration FROM milepost.child_run AS k
JOIN milepost.step AS s ON s.run_id = k.run_id AND s.name = k.step AND s.iteration = k.iteration
    AND s.attempt = k.attempt AND s.state = 'WAITING'
WHERE k.child_id = ANY ($1::uuid[])
ORDER BY k.run_id;

-- What a parent asks of its child is audited like what a person asks.
-- name: audit_stop
INSERT INTO milepost.audit (id, tenant, actor, kind, act, run_id, reason, before, after, evidence)
SELECT $1::uuid, r.tenant, $3::text, 'SYSTEM', 'run.cancel', r.id, $4::text, jsonb_build_object('run', $5::text),
       jsonb_build_object('run', $6::text), jsonb_build_object('undo', $7::boolean, 'parent', $8::uuid)
FROM milepost.run AS r
WHERE r.id = $2;
