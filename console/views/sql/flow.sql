-- The outbox and replays. Neither belongs to a tenant or a saga: whoever may see only some of these is not asked about.

-- name: outbox
SELECT lease.owner, lease.expires_at > milepost.clock() AS leads, lease.epoch, at.previous::text AS previous,
       at.current::text AS current, at.last_seq, at.at AS position_at,
       at.system_identifier = control.system_identifier AS at_home,
       waiting.amount, waiting.oldest, milepost.clock() AS now,
       (SELECT count(*) FROM generate_series(1, 60) AS d(n)
        WHERE to_regclass('milepost.' || (SELECT name FROM milepost.partition_of(
                  'outbox', clock_timestamp() + make_interval(days => d.n)))) IS NOT NULL) AS partition_days
FROM pg_catalog.pg_control_system() AS control
LEFT JOIN milepost.outbox_lease AS lease ON lease.outbox = 'outbox'
LEFT JOIN LATERAL (
    SELECT p.* FROM milepost.outbox_position AS p WHERE p.outbox = 'outbox' ORDER BY p.epoch DESC, p.n DESC LIMIT 1
) AS at ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS amount, min(o.created_at) AS oldest
    FROM (SELECT o.created_at FROM milepost.outbox AS o
          WHERE o.xid >= coalesce(pg_snapshot_xmin(at.previous), '0'::xid8)
            AND (at.previous IS NULL
                 OR NOT pg_visible_in_snapshot(o.xid, at.previous)
                 AND NOT (pg_visible_in_snapshot(o.xid, at.current) AND o.seq <= at.last_seq))
          ORDER BY o.seq
          LIMIT $1) AS o
) AS waiting;

-- name: parked
SELECT l.topic, l.code, count(*) AS amount, count(*) FILTER (WHERE l.status = 'RETRY_PENDING') AS asked,
       bool_and(l.recoverable) AS recoverable, min(l.n) AS first, min(l.first_failed_at) AS oldest,
       (array_agg(l.message ORDER BY l.n))[1] AS message
FROM milepost.dead_letter AS l
WHERE l.stage = 'RELAY' AND l.status IN ('OPEN', 'RETRY_PENDING')
GROUP BY l.topic, l.code
ORDER BY count(*) DESC, l.topic, l.code
LIMIT 100;

-- name: topics
SELECT t.name, t.compacted, t.on_park, t.seen_at FROM milepost.topic AS t ORDER BY t.name LIMIT 200;

-- name: positions
SELECT p.consumer, p.topic, count(*) AS partitions, max(p.at) AS moved_at FROM milepost.consumer_position AS p
GROUP BY p.consumer, p.topic
ORDER BY p.consumer, p.topic
LIMIT 500;

-- name: replays
SELECT r.id, r.consumer, r.topic, r.apply, r.begins::text AS begins, r.ends::text AS ends, r.nexts::text AS nexts,
       r.counts::text AS counts, r.unidentified, r.started_at, r.at, r.finished_at, milepost.clock() AS now
FROM milepost.replay AS r
WHERE ($1::uuid IS NULL OR r.id < $1) AND ($2::uuid IS NULL OR r.id = $2)
ORDER BY r.id DESC
LIMIT $3;

-- name: findings
SELECT r.findings::text AS findings FROM milepost.replay AS r WHERE r.id = $1;

-- name: consumers
-- Names that somebody has read a topic under.
SELECT DISTINCT p.consumer, p.topic FROM milepost.consumer_position AS p ORDER BY p.consumer, p.topic LIMIT 500;
