-- Held keys, signals, resource locks and who serves which queue. A letter, a hold or a signal that nobody has taken
-- belongs to no saga: $1 of `holds` and `signals` are the tenants of who may see that, NULL for all.

-- name: holds
-- The longest held first; what is told of a line is what the reader may see of it.
SELECT h.scope, h.topic, h.key, h.reason, h.since, line.amount, line.first, line.first_code, line.first_status,
       milepost.clock() AS now
FROM milepost.hold AS h
CROSS JOIN LATERAL (
    SELECT count(*) AS amount, (array_agg(l.n ORDER BY l.place))[1] AS first,
           (array_agg(l.code ORDER BY l.place))[1] AS first_code, (array_agg(l.status ORDER BY l.place))[1] AS first_status
    FROM (SELECT n, coalesce(turn, n) AS place, code, status, tenant
          FROM milepost.dead_letter
          WHERE scope = h.scope AND topic = h.topic AND held_key = h.key AND status IN ('OPEN', 'RETRY_PENDING')
            AND h.scope NOT LIKE 'relay:%'
          UNION ALL
          SELECT n, seq, code, status, tenant
          FROM milepost.dead_letter
          WHERE h.scope = 'relay:key' AND scope = 'relay:key' AND topic = h.topic
            AND milepost.hold_key(key) = h.key AND status IN ('OPEN', 'RETRY_PENDING')
          UNION ALL
          SELECT n, seq, code, status, tenant
          FROM milepost.dead_letter
          WHERE h.scope = 'relay:topic' AND scope = 'relay:topic' AND topic = h.topic
            AND status IN ('OPEN', 'RETRY_PENDING')) AS l
    WHERE $1::text[] IS NULL OR l.tenant = ANY ($1)
) AS line
WHERE ($1::text[] IS NULL OR line.amount > 0)
  AND ($2::text IS NULL OR h.scope = $2 OR $2 = 'relay' AND h.scope LIKE 'relay:%')
ORDER BY h.since, h.scope, h.topic, h.key
LIMIT $3;

-- name: signals
-- The youngest first, before id $6. $2 are sagas: of what a run has taken, its run's.
SELECT s.id, s.tenant, s.type, s.key, s.source, s.event_id, s.received_at, s.expires_at, s.matched_at, s.run_id,
       r.saga, r.key AS run_key, octet_length(s.payload::text) AS bytes, milepost.clock() AS now
FROM milepost.signal AS s
LEFT JOIN milepost.run AS r ON r.id = s.run_id
WHERE ($1::text[] IS NULL OR s.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
  AND CASE $3::text
          WHEN 'matched' THEN s.matched_at IS NOT NULL
          WHEN 'unmatched' THEN s.matched_at IS NULL AND s.expires_at > milepost.clock()
          WHEN 'expired' THEN s.matched_at IS NULL AND s.expires_at <= milepost.clock()
          ELSE true
      END
  AND ($4::text IS NULL OR s.type = $4) AND ($5::text IS NULL OR s.key = $5)
  AND ($6::uuid IS NULL OR s.id < $6)
ORDER BY s.id DESC
LIMIT $7;

-- name: signal
SELECT s.id, s.tenant, s.type, s.key, s.source, s.event_id, s.received_at, s.expires_at, s.matched_at, s.run_id,
       r.saga, r.key AS run_key, octet_length(s.payload::text) AS bytes, milepost.clock() AS now
FROM milepost.signal AS s
LEFT JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.id = $3 AND ($1::text[] IS NULL OR s.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2));

-- name: signal_payload
SELECT s.payload::text AS payload
FROM milepost.signal AS s
LEFT JOIN milepost.run AS r ON r.id = s.run_id
WHERE s.id = $3 AND ($1::text[] IS NULL OR s.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2));

-- name: resources
-- Locks that somebody waits for first, the longest line first.
SELECT h.tenant, h.name, h.run_id, h.since, r.saga, r.key, r.state, coalesce(q.amount, 0) AS waiting, q.oldest,
       milepost.clock() AS now
FROM milepost.resource AS h
LEFT JOIN milepost.run AS r ON r.id = h.run_id
LEFT JOIN (SELECT tenant, name, count(*) AS amount, min(since) AS oldest
           FROM milepost.resource_queue GROUP BY tenant, name) AS q ON q.tenant = h.tenant AND q.name = h.name
WHERE ($1::text[] IS NULL OR h.tenant = ANY ($1)) AND ($2::text[] IS NULL OR r.saga = ANY ($2))
  AND ($3::text IS NULL OR h.name = $3)
ORDER BY coalesce(q.amount, 0) DESC, h.since, h.tenant, h.name
LIMIT $4;

-- name: resource_line
SELECT q.run_id, q.since, r.saga, r.key, r.state
FROM milepost.resource_queue AS q
LEFT JOIN milepost.run AS r ON r.id = q.run_id
WHERE q.tenant = $3 AND q.name = $4 AND ($1::text[] IS NULL OR q.tenant = ANY ($1))
  AND ($2::text[] IS NULL OR r.saga = ANY ($2))
ORDER BY q.n
LIMIT $5;

-- name: queues
-- Who serves a queue, what is being done of it now, and what is due and begun by nobody.
WITH busy AS (
    SELECT s.queue, count(*) AS amount FROM milepost.step AS s WHERE s.worker IS NOT NULL GROUP BY s.queue
), due AS (
    SELECT s.queue, count(*) AS amount, max(milepost.clock() - s.since) AS oldest
    FROM (SELECT queue, since, state FROM milepost.step
          WHERE wake_at < milepost.clock() + interval '15 minutes' ORDER BY wake_at LIMIT 20000) AS s
    WHERE s.state IN ('PENDING', 'COMPENSATION_PENDING')
    GROUP BY s.queue
), served AS (
    SELECT queue, count(*) AS workers, array_agg(DISTINCT w.service) AS services
    FROM milepost.worker AS w, unnest(w.queues) AS queue
    WHERE w.expires_at > milepost.clock()
    GROUP BY queue
)
SELECT queue, coalesce(served.workers, 0) AS workers, coalesce(served.services, '{}') AS services,
       coalesce(busy.amount, 0) AS busy, coalesce(due.amount, 0) AS due, due.oldest
FROM served
FULL JOIN busy USING (queue)
FULL JOIN due USING (queue)
ORDER BY queue;

-- name: workers
SELECT w.id, w.service, w.name, w.roles, w.queues, w.started_at, w.expires_at, milepost.clock() AS now
FROM milepost.worker AS w
WHERE w.expires_at > milepost.clock() - interval '1 hour'
ORDER BY w.expires_at > milepost.clock() DESC, w.service, w.name
LIMIT 200;
