-- What the next walk would remove, by kind, counted up to $2; the conditions are those of consumers/sql/retention.sql and
-- ageing.sql, which a test holds.

-- name: walks
SELECT kind, purged_below, at, milepost.clock() AS now FROM milepost.retention;

-- name: bound
SELECT milepost.clock() - $1::interval;

-- name: count_inbox
SELECT count(*) FROM (
    SELECT FROM milepost.inbox AS i
    WHERE i.at < $1
      AND EXISTS (SELECT FROM milepost.consumer_position AS p
                  WHERE p.consumer = i.consumer AND p.topic = i.topic AND p.partition = i.partition
                    AND p.next_offset > i."offset")
      AND (i.outcome = 'APPLIED'
           OR NOT EXISTS (SELECT FROM milepost.dead_letter AS l
                          WHERE l.scope = 'consumer:' || i.consumer AND l.topic = i.topic
                            AND l.event_id = i.event_id AND l.status IN ('OPEN', 'RETRY_PENDING')))
    LIMIT $2) AS found;

-- name: count_signals
SELECT count(*) FROM (
    SELECT FROM milepost.signal AS s
    WHERE CASE WHEN s.matched_at IS NULL THEN s.expires_at ELSE greatest(s.matched_at, s.expires_at) END < $1
      AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = s.run_id AND r.wake_at IS NOT NULL)
    LIMIT $2) AS found;

-- name: count_letters
SELECT count(*) FROM (
    SELECT FROM milepost.dead_letter AS l
    WHERE l.status IN ('RESOLVED', 'IGNORED') AND coalesce(l.resolved_at, l.last_failed_at) < $1
    LIMIT $2) AS found;

-- name: count_operations
SELECT count(*) FROM (
    SELECT FROM milepost.operation AS o WHERE o.expires_at < $1 AND o.wake_at IS NULL LIMIT $2) AS found;

-- name: count_webhooks
SELECT count(*) FROM (
    SELECT FROM milepost.webhook AS w
    WHERE w.finished_at < $1 AND w.state IN ('PROCESSED', 'IGNORED') LIMIT $2) AS found;

-- name: count_replays
SELECT count(*) FROM (SELECT FROM milepost.replay AS r WHERE r.at < $1 LIMIT $2) AS found;

-- name: count_participants
SELECT count(*) FROM (SELECT FROM milepost.barrier AS b WHERE b.at < $1 LIMIT $2) AS found;

-- name: count_runs
SELECT count(*) FROM (
    SELECT FROM milepost.run AS r WHERE r.created_at < $1 AND r.finished_at < $1 LIMIT $2) AS found;

-- name: count_requests
SELECT count(*) FROM (
    SELECT FROM milepost.request AS q
    WHERE q.answered_at < $1 AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = q.run_id)
    LIMIT $2) AS found;

-- name: count_reconciliations
SELECT count(*) FROM (
    SELECT FROM milepost.reconciliation AS c
    WHERE c.at < $1 AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = c.run_id)
    LIMIT $2) AS found;

-- name: count_artifacts
SELECT count(*) FROM (
    SELECT FROM milepost.artifact AS a
    WHERE a.created_at < $1
      AND NOT EXISTS (SELECT FROM milepost.run AS r WHERE r.id = a.run_id AND r.wake_at IS NOT NULL)
    LIMIT $2) AS found;
