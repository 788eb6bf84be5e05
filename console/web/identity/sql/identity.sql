-- Who may use the console: sessions, tokens, and what names may do. Secrets are known here by their SHA-256 alone.

-- name: open_session
INSERT INTO milepost.console_session (hash, name, kind, way, groups, token_id, expires_at)
SELECT $1::bytea, $2::text, $3::text, $4::text, $5::text[], $6::uuid,
       least(milepost.clock() + $7::interval, (SELECT t.expires_at FROM milepost.access_token AS t WHERE t.id = $6));

-- A session that a token opened ends with it.
-- name: find_session
SELECT s.name, s.kind, s.way, s.groups, t.grants::text AS token_grants, milepost.access_of(s.name)::text AS access
FROM milepost.console_session AS s
LEFT JOIN milepost.access_token AS t ON t.id = s.token_id
WHERE s.hash = $1 AND s.expires_at > milepost.clock()
  AND (s.token_id IS NULL OR t.revoked_at IS NULL AND t.expires_at > milepost.clock());

-- name: end_session
DELETE FROM milepost.console_session WHERE hash = $1;

-- name: forget_sessions
DELETE FROM milepost.console_session WHERE expires_at < milepost.clock();

-- name: find_token
SELECT t.id, t.name, t.kind, t.grants::text AS grants
FROM milepost.access_token AS t
WHERE t.hash = $1 AND t.revoked_at IS NULL AND t.expires_at > milepost.clock();

-- Once a minute is enough to see which tokens are in use.
-- name: note_use
UPDATE milepost.access_token SET used_at = milepost.clock()
WHERE id = $1 AND (used_at IS NULL OR used_at < milepost.clock() - interval '1 minute');

-- name: access
SELECT milepost.access_of($1)::text;

-- name: usable_tokens
SELECT count(*) FROM milepost.access_token WHERE revoked_at IS NULL AND expires_at > milepost.clock();

-- name: ready
SELECT coalesce(max(number), 0) FROM milepost.migration;
