-- name: list_operations
-- Unknown is also one whose lease has ended: whoever did it is gone, and nobody has asked since.
SELECT o.id, o.tenant, o.kind, o.key, o.service, o.repeat, o.state, o.attempts, o.doubt_at, o.resource_type,
       o.resource_id, o.response_code, o.code, o.message, o.created_at, o.updated_at, o.wake_at, o.expires_at,
       o.state = 'UNKNOWN' OR o.state = 'RUNNING' AND o.wake_at <= (SELECT milepost.clock()) AS in_doubt,
       (SELECT milepost.clock()) AS now
FROM milepost.operation AS o
WHERE (NOT $1::boolean OR o.state = 'UNKNOWN' OR o.state = 'RUNNING' AND o.wake_at <= (SELECT milepost.clock()))
  AND ($2::text IS NULL OR o.kind = $2)
ORDER BY o.updated_at DESC, o.id DESC
LIMIT $3;

-- name: find_operations
SELECT o.id, o.tenant, o.kind, o.key, o.state, o.fence,
       o.state = 'UNKNOWN' OR o.state = 'RUNNING' AND o.wake_at <= (SELECT milepost.clock()) AS in_doubt
FROM milepost.operation AS o
WHERE (o.kind = $1 AND o.key = $2 OR o.id = $3::uuid) AND ($4::text IS NULL OR o.tenant = $4)
ORDER BY o.tenant;

-- name: settle_operation
-- Only as it was looked at, by its fence, and only while nobody knows; the fence rises, so that nobody who is lost and
-- comes back changes what a person has said.
WITH changed AS (
    UPDATE milepost.operation AS o
    SET state = $3, fence = o.fence + 1, wake_at = NULL, doubt_at = NULL, result = $4::jsonb, code = $5,
        message = $6, updated_at = milepost.clock(), expires_at = milepost.clock() + $7::interval
    FROM (SELECT state, id FROM milepost.operation WHERE id = $1) AS was
    WHERE o.id = $1 AND was.id = o.id AND o.fence = $2
      AND (o.state = 'UNKNOWN' OR o.state = 'RUNNING' AND o.wake_at <= milepost.clock())
    RETURNING o.id, o.tenant, o.kind, o.key, was.state AS before
)
INSERT INTO milepost.audit (id, tenant, actor, act, reason, before, after, evidence)
SELECT $8, tenant, $9, 'operation.settle', $6, jsonb_build_object('state', before),
       jsonb_build_object('state', $3::text, 'code', $5::text, 'result', $4::jsonb),
       jsonb_build_object('kind', kind, 'key', key, 'operation', id)
FROM changed
RETURNING id;
