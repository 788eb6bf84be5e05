-- name: list_webhooks
SELECT w.id, w.tenant, w.service, w.provider, w.event_id, w.state, w.attempts, w.code, w.message, w.conflicts,
       w.received_at, w.finished_at, w.wake_at, w.published, octet_length(w.body) AS size,
       (SELECT milepost.clock()) AS now
FROM milepost.webhook AS w
WHERE (cardinality($1::text[]) = 0 OR w.state = ANY ($1)) AND ($2::text IS NULL OR w.provider = $2)
ORDER BY w.received_at DESC, w.id DESC
LIMIT $3;

-- name: find_webhooks
SELECT w.id, w.tenant, w.service, w.provider, w.event_id, w.state, w.attempts, w.code, w.message, w.conflicts,
       w.conflict_at, w.received_at, w.finished_at, w.wake_at, w.published, w.path, w.headers, w.body, w.traceparent,
       octet_length(w.body) AS size, (SELECT milepost.clock()) AS now
FROM milepost.webhook AS w
WHERE w.provider = $1 AND w.event_id = $2 AND ($3::text IS NULL OR w.tenant = $3)
ORDER BY w.tenant;

-- name: redrive_webhook
-- One that has FAILED since it was looked at, and no other: the change, and who made it and why.
WITH changed AS (
    UPDATE milepost.webhook
    SET state = 'RECEIVED', attempts = 0, wake_at = milepost.clock(), finished_at = NULL
    WHERE id = $1 AND state = 'FAILED'
    RETURNING id, tenant, provider, event_id, code
)
INSERT INTO milepost.audit (id, tenant, actor, act, reason, before, after, evidence)
SELECT $2, tenant, $3, 'webhook.redrive', $4, jsonb_build_object('state', 'FAILED', 'code', code),
       jsonb_build_object('state', 'RECEIVED'),
       jsonb_build_object('provider', provider, 'event_id', event_id, 'webhook', id)
FROM changed
RETURNING id;

-- name: records_in_trouble
SELECT 'failed' AS what, count(*) AS amount, max((SELECT milepost.clock()) - received_at) AS oldest,
       (array_agg(provider || '/' || event_id ORDER BY received_at))[1] AS first
FROM milepost.webhook
WHERE state = 'FAILED'
UNION ALL
SELECT 'waiting', count(*), max((SELECT milepost.clock()) - wake_at),
       (array_agg(provider || '/' || event_id ORDER BY wake_at))[1]
FROM milepost.webhook
WHERE wake_at < (SELECT milepost.clock()) - $1::interval
UNION ALL
SELECT 'unknown', count(*), max((SELECT milepost.clock()) - coalesce(doubt_at, wake_at)),
       (array_agg(kind || '/' || key ORDER BY wake_at))[1]
FROM milepost.operation
WHERE wake_at IS NOT NULL AND (state = 'UNKNOWN' OR wake_at < (SELECT milepost.clock()) - $1::interval);
