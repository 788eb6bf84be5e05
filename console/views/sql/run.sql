-- One run, with what `milepost runs show` does not need: payloads, who said what, and what belongs to it.

-- name: whose
SELECT tenant, saga FROM milepost.run WHERE id = $1;

-- name: more
SELECT r.shape, r.policy, r.input::text AS input, r.input_version, r.version, r.priority,
       (SELECT d.outline::text FROM milepost.definition AS d
        WHERE d.service = r.service AND d.saga = r.saga AND d.version = r.definition AND d.shape = r.shape
        ORDER BY d.policy = r.policy DESC, d.since DESC LIMIT 1) AS outline,
       (SELECT min(h.parked_at) FROM milepost.handover AS h WHERE h.run_id = r.id AND h.parked_at IS NOT NULL) AS parked_at
FROM milepost.run AS r WHERE r.id = $1;

-- name: payloads
SELECT s.name, s.iteration, s.n, s.fence, s.generation, s.result::text AS result, s.progress::text AS progress, s.asked::text AS asked,
       s.spent::text AS spent, s.granted::text AS granted, s.limited_until, s.first_at
FROM milepost.step AS s WHERE s.run_id = $1;

-- name: evidence
SELECT c.step, c.iteration, c.before, c.decision, c.after, c.actor, c.reason, c.at, c.evidence::text AS evidence
FROM milepost.reconciliation AS c WHERE c.run_id = $1 ORDER BY c.at LIMIT 500;

-- name: audited
SELECT a.id, a.at, a.actor, a.act, a.step, a.reason, a.before::text AS before, a.after::text AS after
FROM milepost.audit AS a WHERE a.run_id = $1 ORDER BY a.at LIMIT 500;

-- What it waits and waited for, with the signals that came.
-- name: messages
SELECT w.step, w.iteration, w.type, w.key, w.state, w.since, s.id AS signal_id, s.source, s.event_id, s.received_at,
       s.matched_at, s.traceparent, s.payload::text AS payload
FROM milepost.wait AS w
LEFT JOIN milepost.signal AS s ON s.id = w.signal_id
WHERE w.run_id = $1
ORDER BY w.since, w.generation LIMIT 500;

-- What it has published: rows of its correlation, or of its trace where they say no correlation, written by the
-- transactions that wrote its history. xmin has the lower half of a transaction's number, and lies a little above it where
-- that row was written under a savepoint.
-- name: published
WITH position AS MATERIALIZED (
    SELECT p.previous, p.current, p.last_seq FROM milepost.outbox_position AS p ORDER BY p.epoch DESC, p.n DESC LIMIT 1
), written AS MATERIALIZED (
    SELECT DISTINCT s.next - ((s.next - h.xmin::text::bigint) & 4294967295) AS xid
    FROM (SELECT xmin FROM milepost.history WHERE run_id = $1 ORDER BY n DESC LIMIT 300) AS h
    CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) AS s
)
SELECT DISTINCT ON (o.seq) o.id, o.type, o.topic, o.aggregateid AS key, o.created_at AS at,
       coalesce(pg_visible_in_snapshot(o.xid, p.previous)
                OR pg_visible_in_snapshot(o.xid, p.current) AND o.seq <= p.last_seq, false) AS sent,
       l.status AS letter, l.n AS letter_n
FROM written AS w
JOIN milepost.run AS r ON r.id = $1
CROSS JOIN LATERAL (
    SELECT * FROM milepost.outbox AS o
    WHERE o.xid >= greatest(w.xid - 16, 0)::text::xid8 AND o.xid <= w.xid::text::xid8
) AS o
LEFT JOIN position AS p ON true
LEFT JOIN milepost.dead_letter AS l ON l.event_id = o.id AND l.stage = 'RELAY' AND l.status IN ('OPEN', 'RETRY_PENDING')
WHERE coalesce(o.headers ->> 'ce_correlationid' = r.correlation_id,
               split_part(o.headers ->> 'traceparent', '-', 2) = split_part(r.traceparent, '-', 2))
  AND o.type NOT LIKE 'milepost.%'
ORDER BY o.seq
LIMIT 200;

-- name: children
SELECT c.step, c.iteration, c.attempt, c.child_id, c.key, c.joined, coalesce(r.state, c.state) AS state, r.saga
FROM milepost.child_run AS c
LEFT JOIN milepost.run AS r ON r.id = c.child_id
WHERE c.run_id = $1
ORDER BY c.step, c.iteration, c.attempt LIMIT 200;

-- name: parents
SELECT r.id, r.saga, r.key, r.state, c.step
FROM milepost.child_run AS c JOIN milepost.run AS r ON r.id = c.run_id
WHERE c.child_id = $1
UNION ALL
SELECT r.id, r.saga, r.key, r.state, f.step
FROM milepost.fanout_item AS f JOIN milepost.run AS r ON r.id = f.run_id
WHERE f.child_id = $1
LIMIT 20;

-- name: request
SELECT q.id, q.run_id, q.what, q.step, q.iteration, q.by, q.reason, q.at, q.state, q.answer, q.answered_at
FROM milepost.request AS q WHERE q.id = $1;
