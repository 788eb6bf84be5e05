-- Tokens and grants of the console. Each change is an entry of the audit, in the same transaction.

-- name: add_token
WITH added AS (
    INSERT INTO milepost.access_token (id, name, kind, hash, grants, by, expires_at)
    VALUES ($1, $2, $3, $4, $5::jsonb, $6, milepost.clock() + $7::interval)
    RETURNING id, name, kind, grants, expires_at
), audited AS (
    INSERT INTO milepost.audit (id, actor, act, reason, after)
    SELECT $8::uuid, $6, 'token.add', $9::text,
           jsonb_build_object('token', a.id, 'name', a.name, 'kind', a.kind, 'grants', a.grants, 'expires_at', a.expires_at)
    FROM added AS a
)
SELECT expires_at FROM added;

-- name: tokens
SELECT id, name, kind, grants::text AS grants, by, created_at, expires_at, used_at, revoked_at,
       CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= milepost.clock() THEN 'over' ELSE 'usable' END AS state
FROM milepost.access_token
ORDER BY id DESC
LIMIT 1000;

-- By its id or the beginning of it, or by its name.
-- name: find_tokens
SELECT id, name, revoked_at FROM milepost.access_token
WHERE length($1) >= 8 AND starts_with(id::text, $1) OR name = $1
ORDER BY id;

-- Sessions that were opened with it end too: `find_session` looks at the token.
-- name: revoke_token
WITH revoked AS (
    UPDATE milepost.access_token SET revoked_at = milepost.clock()
    WHERE id = $1 AND revoked_at IS NULL
    RETURNING id, name
), audited AS (
    INSERT INTO milepost.audit (id, actor, act, reason, before)
    SELECT $2::uuid, $3::text, 'token.revoke', $4::text, jsonb_build_object('token', r.id, 'name', r.name)
    FROM revoked AS r
)
SELECT count(*) FROM revoked;

-- name: add_grant
WITH added AS (
    INSERT INTO milepost.access_grant (id, name, role, tenants, sagas, by)
    VALUES ($1, $2, $3, $4::text[], $5::text[], $6)
    RETURNING id, name, role, tenants, sagas
), audited AS (
    INSERT INTO milepost.audit (id, actor, act, reason, after)
    SELECT $7::uuid, $6, 'access.add', $8::text, to_jsonb(a) FROM added AS a
)
SELECT id FROM added;

-- name: grants
SELECT id, name, role, tenants, sagas, by, since FROM milepost.access_grant WHERE revoked_at IS NULL ORDER BY name, id LIMIT 1000;

-- name: find_grants
SELECT id, name, role FROM milepost.access_grant
WHERE revoked_at IS NULL AND (length($1) >= 8 AND starts_with(id::text, $1) OR name = $1)
ORDER BY id;

-- name: revoke_grant
WITH revoked AS (
    UPDATE milepost.access_grant SET revoked_at = milepost.clock()
    WHERE id = $1 AND revoked_at IS NULL
    RETURNING id, name, role, tenants, sagas
), audited AS (
    INSERT INTO milepost.audit (id, actor, act, reason, before)
    SELECT $2::uuid, $3::text, 'access.revoke', $4::text, to_jsonb(r) FROM revoked AS r
)
SELECT count(*) FROM revoked;
