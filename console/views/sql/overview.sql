-- The overview: what lives now, what has ended lately, how far outbox and consumers are. $1 tenants and $2 sagas that may be
-- seen, NULL for all.

-- Live runs by workflow and state, at most $3 of them: nothing is counted for longer than that takes.
-- name: live
SELECT found.saga, found.state, count(*) AS amount, min(found.created_at) AS oldest
FROM (SELECT r.saga, r.state, r.created_at
      FROM milepost.run AS r
      WHERE r.wake_at IS NOT NULL
        AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
      LIMIT $3) AS found
GROUP BY found.saga, found.state
ORDER BY found.saga, found.state;

-- Up to when the tally has counted; NULL where it never has.
-- name: tallied
SELECT milepost.clock() AS now,
       (SELECT max(t.bucket) + interval '5 minutes' FROM milepost.tally AS t WHERE t.what = 'tallied') AS upto;

-- What the tally says of the last hour, day and week, and the runs that have ended since, from $3 on; $4 is now.
-- name: lately
SELECT c.saga, c.what,
       coalesce(sum(c.amount) FILTER (WHERE c.at >= $4::timestamptz - interval '1 hour'), 0)::bigint AS hour,
       coalesce(sum(c.amount) FILTER (WHERE c.at >= $4::timestamptz - interval '1 day'), 0)::bigint AS day,
       sum(c.amount)::bigint AS week,
       coalesce(sum(c.seconds) FILTER (WHERE c.at >= $4::timestamptz - interval '1 hour'), 0)::float8 AS hour_s,
       coalesce(sum(c.seconds) FILTER (WHERE c.at >= $4::timestamptz - interval '1 day'), 0)::float8 AS day_s,
       sum(c.seconds)::float8 AS week_s
FROM (
    SELECT t.saga, t.what, t.bucket AS at, t.amount, t.seconds
    FROM milepost.tally AS t
    WHERE t.bucket >= $4::timestamptz - interval '7 days' AND t.what <> 'tallied'
      AND ($1::text[] IS NULL OR t.tenant = ANY ($1)) AND ($2::text[] IS NULL OR t.saga = ANY ($2))
    UNION ALL
    SELECT r.saga, 'run.' || r.state, r.finished_at, 1, extract(epoch FROM r.finished_at - r.created_at)
    FROM milepost.run AS r
    WHERE r.finished_at >= $3::timestamptz
      AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
    UNION ALL
    SELECT r.saga, 'started', r.created_at, 1, 0
    FROM milepost.run AS r
    WHERE r.created_at >= $3::timestamptz
      AND ($1::text[] IS NULL OR r.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
) AS c
GROUP BY c.saga, c.what
ORDER BY c.saga, c.what;

-- name: outbox
WITH position AS MATERIALIZED (
    SELECT p.previous, p.current, p.last_seq, p.at
    FROM milepost.outbox_position AS p
    ORDER BY p.epoch DESC, p.n DESC
    LIMIT 1
)
SELECT count(*) AS amount, max(clock_timestamp() - found.created_at) AS oldest,
       EXISTS (SELECT FROM milepost.outbox_lease AS l
               WHERE l.owner IS NOT NULL AND l.expires_at > milepost.clock()) AS leased,
       (SELECT at FROM position) AS moved
FROM (SELECT o.created_at
      FROM milepost.outbox AS o
      LEFT JOIN position AS at ON true
      WHERE o.xid >= coalesce((SELECT pg_snapshot_xmin(previous) FROM position), '0'::xid8)
        AND (at.previous IS NULL
             OR NOT pg_visible_in_snapshot(o.xid, at.previous)
             AND NOT (pg_visible_in_snapshot(o.xid, at.current) AND o.seq <= at.last_seq))
      LIMIT $1) AS found;

-- What is waiting beside runs: letters and holds, requests that nobody has carried out, and live processes.
-- name: beside
SELECT (SELECT count(*) FROM (SELECT FROM milepost.dead_letter
                              WHERE status IN ('OPEN', 'RETRY_PENDING') LIMIT $1) AS l) AS letters,
       (SELECT min(first_failed_at) FROM (SELECT first_failed_at FROM milepost.dead_letter
                              WHERE status IN ('OPEN', 'RETRY_PENDING') LIMIT $1) AS l) AS letters_since,
       (SELECT count(*) FROM (SELECT FROM milepost.hold LIMIT $1) AS h) AS holds,
       (SELECT count(*) FROM (SELECT FROM milepost.step WHERE state IN ('UNKNOWN') AND wake_at IS NOT NULL LIMIT $1) AS s) AS unknown,
       (SELECT min(since) FROM (SELECT least(since, doubt_at) AS since FROM milepost.step
                                WHERE state IN ('UNKNOWN') AND wake_at IS NOT NULL LIMIT $1) AS s)
           AS unknown_since,
       (SELECT count(*) FROM milepost.worker WHERE expires_at > milepost.clock()) AS workers;

-- By consumer: partitions, events applied, and when it last moved.
-- name: consumers
SELECT p.consumer, count(*) AS partitions, sum(p.next_offset)::bigint AS applied, max(p.at) AS moved,
       (SELECT count(*) FROM (SELECT FROM milepost.dead_letter AS l WHERE l.scope = 'consumer:' || p.consumer
                              AND l.status IN ('OPEN', 'RETRY_PENDING') LIMIT 1001) AS l) AS letters
FROM milepost.consumer_position AS p
GROUP BY p.consumer
ORDER BY p.consumer
LIMIT 100;

-- name: processes
SELECT service, name, roles, queues, started_at, expires_at
FROM milepost.worker WHERE expires_at > milepost.clock() ORDER BY service, name LIMIT 200;

-- name: positions
SELECT p.consumer, p.topic, p.partition, p.next_offset FROM milepost.consumer_position AS p LIMIT 10000;
