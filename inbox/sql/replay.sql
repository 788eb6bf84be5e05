-- Replays (inbox/replay_store.py): what a consumer knows of some events, and how far a replay has come.

-- One snapshot for both: whose row is gone was removed after the bound was raised, so whoever misses the row sees that.
-- name: known
SELECT floor.purged_below, i.event_id, i.fingerprint, i.outcome, i.topic, i.partition, i."offset", i.at
FROM (SELECT (SELECT purged_below FROM milepost.retention WHERE kind = 'inbox') AS purged_below) AS floor
LEFT JOIN milepost.inbox AS i ON i.consumer = $1 AND i.event_id = ANY ($2::uuid[]);

-- name: floor
SELECT greatest(milepost.clock() - $1::interval, (SELECT purged_below FROM milepost.retention WHERE kind = 'inbox'));

-- name: begin
INSERT INTO milepost.replay (id, consumer, topic, apply, begins, ends, live, floor, nexts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $5)
RETURNING started_at;

-- name: audit
INSERT INTO milepost.audit (id, actor, act, reason, after)
VALUES ($1, $2, 'replay', $3, jsonb_build_object('replay', $4::uuid, 'consumer', $5::text, 'topic', $6::text,
                                                'begins', $7::jsonb, 'ends', $8::jsonb));

-- name: load
SELECT consumer, topic, apply, begins, ends, live, floor, nexts, counts, unidentified, findings, report_bytes,
       started_at, finished_at
FROM milepost.replay WHERE id = $1;

-- Not flushed to disk: a replay whose last progress is lost reads that stretch again.
-- name: advance
UPDATE milepost.replay
SET nexts = $2, counts = $3, unidentified = $4, findings = $5, report_bytes = $6, at = milepost.clock(),
    finished_at = CASE WHEN $7 THEN milepost.clock() END
FROM (SELECT set_config('synchronous_commit', 'off', true) AS level) AS unflushed
WHERE id = $1 AND unflushed.level IS NOT NULL;

-- name: forget_tries
DELETE FROM milepost.inbox_attempt WHERE consumer = $1;
