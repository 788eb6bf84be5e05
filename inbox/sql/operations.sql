-- name: begin
INSERT INTO milepost.operation (tenant, kind, key, id, service, fingerprint, repeat, state, fence, wake_at,
                                expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, 'RUNNING', $10::bigint, clock.now + $8::interval,
       CASE WHEN $7 = 'safe' THEN clock.now + $8::interval + $9::interval END
FROM (SELECT milepost.clock() AS now) AS clock
ON CONFLICT (tenant, kind, key) DO NOTHING
RETURNING id, fence;

-- name: read
SELECT id, fingerprint, state, fence, wake_at, doubt_at, expires_at, result, response_code, response_headers,
       response_body, code, message, milepost.clock() AS now
FROM milepost.operation
WHERE tenant = $1 AND kind = $2 AND key = $3;

-- name: claim
-- The record as it was read, by its fence and state, or nothing: of two who read it one claims it. A lease may have been
-- renewed since it was read.
UPDATE milepost.operation AS o
SET state = 'RUNNING', fence = $11, repeat = $6, service = $7, updated_at = clock.now,
    wake_at = clock.now + $8::interval,
    expires_at = CASE WHEN $6 = 'safe' THEN clock.now + $8::interval + $9::interval END,
    doubt_at = $10, attempts = o.attempts + CASE WHEN $10::timestamptz IS NULL THEN 1 ELSE 0 END
FROM (SELECT milepost.clock() AS now) AS clock
WHERE o.tenant = $1 AND o.kind = $2 AND o.key = $3 AND o.fence = $4 AND o.state = $5
  AND (o.state <> 'RUNNING' OR o.wake_at <= clock.now)
RETURNING o.id, o.fence;

-- name: claim_anew
UPDATE milepost.operation AS o
SET state = 'RUNNING', fence = o.fence + 1, repeat = $6, service = $7, updated_at = clock.now, created_at = clock.now,
    wake_at = clock.now + $8::interval,
    expires_at = CASE WHEN $6 = 'safe' THEN clock.now + $8::interval + $9::interval END,
    fingerprint = $10, id = $11, doubt_at = NULL, attempts = 1, result = NULL, response_code = NULL,
    response_headers = NULL, response_body = NULL, resource_type = NULL, resource_id = NULL, code = NULL, message = NULL
FROM (SELECT milepost.clock() AS now) AS clock
WHERE o.tenant = $1 AND o.kind = $2 AND o.key = $3 AND o.fence = $4 AND o.state = $5 AND o.expires_at <= clock.now
  AND (o.state <> 'RUNNING' OR o.wake_at <= clock.now)
RETURNING o.id, o.fence;

-- name: renew
UPDATE milepost.operation AS o
SET wake_at = clock.now + $5::interval, expires_at = o.expires_at + (clock.now + $5::interval - o.wake_at)
FROM (SELECT milepost.clock() AS now) AS clock
WHERE o.tenant = $1 AND o.kind = $2 AND o.key = $3 AND o.fence = $4 AND o.state = 'RUNNING' AND o.wake_at > clock.now
RETURNING true;

-- name: absent
-- The probe found nothing and nothing can come any more: from here on it is the running try that is in doubt.
UPDATE milepost.operation AS o
SET doubt_at = NULL, attempts = o.attempts + 1, wake_at = clock.now + $5::interval, updated_at = clock.now
FROM (SELECT milepost.clock() AS now) AS clock
WHERE o.tenant = $1 AND o.kind = $2 AND o.key = $3 AND o.fence = $4 AND o.state = 'RUNNING' AND o.wake_at > clock.now
RETURNING true;

-- name: finish
-- A definite ending is also taken after the lease, as long as nobody has claimed the operation since: it is the truth.
UPDATE milepost.operation AS o
SET state = $5, updated_at = clock.now,
    wake_at = CASE WHEN $5 = 'UNKNOWN' THEN clock.now + $7::interval END,
    expires_at = CASE WHEN $5 <> 'UNKNOWN' THEN clock.now + $8::interval END,
    doubt_at = CASE WHEN $18::boolean THEN coalesce($9::timestamptz, clock.now) END,
    result = $10::jsonb, response_code = $11, response_headers = $12::jsonb, response_body = $13, resource_type = $14,
    resource_id = $15, code = $16, message = $17
FROM (SELECT milepost.clock() AS now) AS clock
WHERE o.tenant = $1 AND o.kind = $2 AND o.key = $3 AND o.fence = $4
  AND (o.state = 'RUNNING' OR o.state = 'UNKNOWN' AND $6::boolean)
RETURNING true;

-- name: mark_lost
-- The fence stays: should whoever is lost come back with a definite ending, it is taken.
UPDATE milepost.operation AS o
SET state = 'UNKNOWN', doubt_at = coalesce(o.doubt_at, o.wake_at), wake_at = clock.now, expires_at = NULL,
    updated_at = clock.now, code = $5, message = $6
FROM (SELECT milepost.clock() AS now) AS clock
WHERE o.tenant = $1 AND o.kind = $2 AND o.key = $3 AND o.fence = $4 AND o.state = 'RUNNING' AND o.wake_at <= clock.now
RETURNING true;
