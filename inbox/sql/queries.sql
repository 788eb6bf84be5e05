-- The inbox: what each consumer has applied, how far it has read, and what it could not handle.

-- name: positions
SELECT p.topic, p.partition, p.next_offset
FROM unnest($2::text[], $3::integer[]) AS given (topic, partition)
JOIN milepost.consumer_position AS p
    ON p.consumer = $1 AND p.topic = given.topic AND p.partition = given.partition;

-- name: suspects
-- Batches and single events that somebody began and nobody finished.
SELECT a.topic, a.partition, a."offset"
FROM unnest($2::text[], $3::integer[]) AS given (topic, partition)
JOIN milepost.inbox_attempt AS a
    ON a.consumer = $1 AND a.topic = given.topic AND a.partition = given.partition
LEFT JOIN milepost.consumer_position AS p
    ON p.consumer = a.consumer AND p.topic = a.topic AND p.partition = a.partition
WHERE a."offset" >= coalesce(p.next_offset, 0);

-- name: begin_batch
-- Not flushed to disk: it has to survive this process, not the database's host.
INSERT INTO milepost.inbox_attempt AS a (consumer, topic, partition, "offset", attempts)
SELECT $1, $2, $3, $4, 0
FROM (SELECT set_config('synchronous_commit', 'off', true) AS level) AS unflushed
WHERE unflushed.level IS NOT NULL
ON CONFLICT (consumer, topic, partition)
    DO UPDATE SET "offset" = EXCLUDED."offset", attempts = 0, first_at = EXCLUDED.first_at;

-- name: begin_attempt
INSERT INTO milepost.inbox_attempt AS a (consumer, topic, partition, "offset", attempts)
SELECT $1, $2, $3, $4, 1
FROM (SELECT set_config('synchronous_commit', 'off', true) AS level) AS unflushed
WHERE unflushed.level IS NOT NULL
ON CONFLICT (consumer, topic, partition)
    DO UPDATE SET
        "offset" = EXCLUDED."offset",
        attempts = CASE WHEN a."offset" = EXCLUDED."offset" THEN greatest(1, a.attempts + $5) ELSE 1 END,
        first_at = CASE WHEN a."offset" = EXCLUDED."offset" AND a.attempts > 0 THEN a.first_at
                        ELSE EXCLUDED.first_at END
RETURNING attempts, first_at;

-- name: hand_back
-- A try that was called off counts neither as a failure nor as a death.
UPDATE milepost.inbox_attempt
SET attempts = greatest(0, attempts - 1), "offset" = CASE WHEN attempts > 1 THEN "offset" ELSE -1 END
WHERE consumer = $1 AND topic = $2 AND partition = $3 AND "offset" = $4;

-- name: end_attempt
DELETE FROM milepost.inbox_attempt
WHERE consumer = $1 AND topic = $2 AND partition = $3 AND "offset" = $4;

-- name: insert_inbox
-- Tenants may be left out where all are '', outcomes where all are APPLIED: unnest fills up with NULL. One row comes
-- back, with the identities only where not all of them are new; the clock is asked once.
WITH inserted AS (
    INSERT INTO milepost.inbox (consumer, event_id, tenant, fingerprint, outcome, topic, partition, "offset", at)
    SELECT $1, given.event_id, coalesce(given.tenant, ''), given.fingerprint, coalesce(given.outcome, 'APPLIED'),
        $6, $7, given."offset", (SELECT milepost.clock())
    FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::text[], $8::bigint[])
        AS given (event_id, tenant, fingerprint, outcome, "offset")
    ON CONFLICT DO NOTHING
    RETURNING event_id, xmin AS inserted_by
)
SELECT
    CASE WHEN count(*) < cardinality($2) THEN coalesce(array_agg(event_id), '{}') END AS event_ids,
    (SELECT inserted_by::text FROM inserted LIMIT 1) AS inserted_by
FROM inserted;

-- name: forget
DELETE FROM milepost.inbox AS i
USING unnest($2::uuid[], $3::text[]) AS given (event_id, inserted_by)
WHERE i.consumer = $1 AND i.event_id = given.event_id AND i.xmin::text = given.inserted_by;

-- name: answers
SELECT NOT pg_is_in_recovery();

-- name: purged_below
SELECT milepost.clock() AS now, (SELECT purged_below FROM milepost.retention WHERE kind = 'inbox') AS purged_below;

-- name: fingerprints
SELECT event_id, fingerprint
FROM milepost.inbox
WHERE consumer = $1 AND event_id = ANY ($2::uuid[]);

-- name: move_position
WITH before AS (
    SELECT p.next_offset
    FROM milepost.consumer_position AS p
    WHERE p.consumer = $1 AND p.topic = $2 AND p.partition = $3
), moved AS (
    INSERT INTO milepost.consumer_position AS p (consumer, topic, partition, next_offset)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (consumer, topic, partition)
        DO UPDATE SET next_offset = EXCLUDED.next_offset, at = EXCLUDED.at
        WHERE p.next_offset < EXCLUDED.next_offset
)
SELECT next_offset FROM before;

-- name: insert_by_key
-- As insert_inbox, and in the same statement which of the keys are held. A hold that is being worked off is waited for:
-- it is then gone, or its next letters stand behind it.
WITH held AS (
    SELECT h.key
    FROM milepost.hold AS h
    WHERE h.scope = $9 AND h.topic = $6 AND h.key = ANY ($10::bytea[])
    ORDER BY h.key
    FOR SHARE
), inserted AS (
    INSERT INTO milepost.inbox (consumer, event_id, tenant, fingerprint, outcome, topic, partition, "offset", at)
    SELECT $1, given.event_id, coalesce(given.tenant, ''), given.fingerprint, coalesce(given.outcome, 'APPLIED'),
        $6, $7, given."offset", (SELECT milepost.clock())
    FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::text[], $8::bigint[])
        AS given (event_id, tenant, fingerprint, outcome, "offset")
    ON CONFLICT DO NOTHING
    RETURNING event_id, xmin::text AS inserted_by
)
SELECT event_id, inserted_by, NULL::bytea AS held FROM inserted
UNION ALL
SELECT NULL, NULL, key FROM held;
