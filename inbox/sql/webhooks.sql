-- name: insert_webhook
INSERT INTO milepost.webhook
    (id, tenant, service, provider, event_id, path, headers, body, fingerprint, traceparent, wake_at)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9, $10, milepost.clock())
ON CONFLICT (tenant, provider, event_id) DO NOTHING
RETURNING id;

-- name: same_body
SELECT fingerprint = $4 FROM milepost.webhook WHERE tenant = $1 AND provider = $2 AND event_id = $3;

-- name: count_conflict
UPDATE milepost.webhook
SET conflicts = conflicts + 1, conflict_at = milepost.clock()
WHERE tenant = $1 AND provider = $2 AND event_id = $3;

-- name: claim_webhooks
UPDATE milepost.webhook AS w
SET state = 'PROCESSING', fence = w.fence + 1, attempts = w.attempts + 1, wake_at = milepost.clock() + $4::interval
FROM (SELECT id
      FROM milepost.webhook
      WHERE service = $1 AND provider = ANY ($2::text[]) AND wake_at <= (SELECT milepost.clock())
      ORDER BY wake_at
      LIMIT $3
      FOR UPDATE SKIP LOCKED) AS due
WHERE w.id = due.id AND w.wake_at IS NOT NULL
RETURNING w.id, w.fence, w.attempts, w.event_id, w.traceparent, w.provider, w.path, w.headers, w.body, w.tenant,
          w.received_at;

-- name: finish_webhook
UPDATE milepost.webhook
SET state = $3, code = $4, message = $5, published = $6, finished_at = milepost.clock(), wake_at = NULL
WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'
RETURNING id;

-- name: retry_webhook
UPDATE milepost.webhook
SET state = 'RECEIVED', code = $4, message = $5, wake_at = milepost.clock() + $3::interval
WHERE id = $1 AND fence = $2 AND state = 'PROCESSING'
RETURNING id;

-- name: release_webhook
UPDATE milepost.webhook
SET state = 'RECEIVED', attempts = attempts - 1, wake_at = milepost.clock()
WHERE id = $1 AND fence = $2 AND state = 'PROCESSING';
