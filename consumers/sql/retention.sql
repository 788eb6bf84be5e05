-- What may be forgotten (consumers/retention.py). Each statement removes the rows of one stretch of its table, by blocks
-- or along an index, in a transaction of its own, so that it holds few locks, and those briefly.

-- Whoever gets a row walks; the others find that it was done a moment ago. The bound is committed before any row goes.
-- Up to `announced` it was at the walk before this one: by now every process has seen it, whatever its own settings say.
-- name: begin_walk
WITH before AS (SELECT purged_below FROM milepost.retention WHERE kind = $1)
INSERT INTO milepost.retention AS r (kind, purged_below, at)
VALUES ($1, milepost.clock() - $2::interval, milepost.clock())
ON CONFLICT (kind) DO UPDATE
    SET purged_below = greatest(r.purged_below, EXCLUDED.purged_below), at = EXCLUDED.at
    WHERE r.at <= EXCLUDED.at - $3::interval OR r.at > EXCLUDED.at
RETURNING milepost.clock() - $2::interval AS bound,
    least(milepost.clock() - $2::interval, (SELECT purged_below FROM before)) AS announced;

-- What goes is found by blocks or along an index, whatever statistics say: of items one run may have nearly all.
-- name: for_walks
SELECT pg_catalog.set_config('lock_timeout', '1s', false), pg_catalog.set_config('enable_seqscan', 'off', false);

-- name: blocks
SELECT pg_catalog.pg_relation_size($1::text::regclass) / pg_catalog.current_setting('block_size')::bigint;

-- An event is remembered while its letter is open, and until it is known that its partition has been read past it.
-- name: purge_inbox
DELETE FROM milepost.inbox AS i
WHERE i.ctid >= $1::tid AND i.ctid < $2::tid AND i.at < $3
  AND EXISTS (SELECT FROM milepost.consumer_position AS p
              WHERE p.consumer = i.consumer AND p.topic = i.topic AND p.partition = i.partition
                AND p.next_offset > i."offset")
  AND (i.outcome = 'APPLIED'
       OR NOT EXISTS (SELECT FROM milepost.dead_letter AS l
                      WHERE l.scope = 'consumer:' || i.consumer AND l.topic = i.topic AND l.event_id = i.event_id
                        AND l.status IN ('OPEN', 'RETRY_PENDING')));

-- A matched signal is what its run resumes with, so it stays while the run is live.
-- name: purge_signals
DELETE FROM milepost.signal AS s
WHERE s.ctid >= $1::tid AND s.ctid < $2::tid
  AND CASE WHEN s.matched_at IS NULL THEN s.expires_at
           ELSE greatest(s.matched_at, s.expires_at) END < $3
  AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = s.run_id AND r.wake_at IS NOT NULL);

-- An open letter stays, however old.
-- name: purge_letters
WITH gone AS (
    SELECT l.id FROM milepost.dead_letter AS l
    WHERE l.ctid >= $1::tid AND l.ctid < $2::tid AND l.status IN ('RESOLVED', 'IGNORED')
      AND coalesce(l.resolved_at, l.last_failed_at) < $3
    FOR UPDATE SKIP LOCKED
), failures AS (
    DELETE FROM milepost.letter_failure AS f USING gone WHERE f.letter_id = gone.id
)
DELETE FROM milepost.dead_letter AS l USING gone WHERE l.id = gone.id;

-- name: purge_operations
DELETE FROM milepost.operation
WHERE id IN (SELECT o.id FROM milepost.operation AS o
             WHERE o.expires_at < $1 AND o.wake_at IS NULL
             ORDER BY o.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED);

-- name: purge_webhooks
DELETE FROM milepost.webhook
WHERE id IN (SELECT w.id FROM milepost.webhook AS w
             WHERE w.finished_at < $1 AND w.state IN ('PROCESSED', 'IGNORED')
             ORDER BY w.finished_at LIMIT $2 FOR UPDATE SKIP LOCKED);

-- name: purge_replays
DELETE FROM milepost.replay
WHERE id IN (SELECT r.id FROM milepost.replay AS r
             WHERE r.at < $1 ORDER BY r.id LIMIT $2 FOR UPDATE SKIP LOCKED);

-- name: purge_participants
DELETE FROM milepost.barrier
WHERE (consumer, tenant, run, step, direction)
      IN (SELECT b.consumer, b.tenant, b.run, b.step, b.direction FROM milepost.barrier AS b
          WHERE b.at < $1 ORDER BY b.at LIMIT $2 FOR UPDATE SKIP LOCKED);

-- Of a live run none goes, however old: its steps may still read it. The object goes before this is committed.
-- name: clear_artifacts
DELETE FROM milepost.artifact
WHERE (run_id, step, iteration, name)
      IN (SELECT a.run_id, a.step, a.iteration, a.name FROM milepost.artifact AS a
          WHERE a.created_at < $1
            AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = a.run_id AND r.wake_at IS NOT NULL)
          ORDER BY a.created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING location;

-- Only what is final has finished_at. Along the index of created_at, since no run ends before it begins. run_key stays.
-- Arrays, so that the plan does not depend on how many rows the planner thinks there are.
-- A run goes with the items of its lists, so few go at once where these are many.
-- name: purge_runs
WITH due AS MATERIALIZED (
    SELECT r.id, r.created_at FROM milepost.run AS r
    WHERE r.created_at < $1 AND r.finished_at < $1
    ORDER BY r.created_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS MATERIALIZED (
    SELECT counted.id
    FROM (SELECT due.id, sum(lists.items) OVER (ORDER BY due.created_at, due.id) - lists.items AS before
          FROM due
          CROSS JOIN LATERAL (SELECT coalesce(sum(f.total), 0) AS items FROM milepost.fanout AS f
                              WHERE f.run_id = due.id) AS lists) AS counted
    WHERE counted.before < 10000
), waits AS (
    DELETE FROM milepost.wait WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), steps AS (
    DELETE FROM milepost.step WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), fingerprints AS (
    DELETE FROM milepost.fingerprint WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), approvals AS (
    DELETE FROM milepost.approval WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), children AS (
    DELETE FROM milepost.child_run WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), lists AS (
    DELETE FROM milepost.fanout WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), items AS (
    DELETE FROM milepost.fanout_item WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
), looks AS (
    DELETE FROM milepost.resume_check WHERE run_id = ANY (ARRAY(SELECT id FROM gone))
)
DELETE FROM milepost.run WHERE id = ANY (ARRAY(SELECT id FROM gone));
