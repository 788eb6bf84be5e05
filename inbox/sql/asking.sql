-- What a person asks for: a letter is to be handled once more, or is to be left as it is.

-- name: place
SELECT id, scope, topic, held_key FROM milepost.dead_letter WHERE n = $1;

-- name: lock_hold
SELECT true FROM milepost.hold WHERE scope = $1 AND topic = $2 AND key = $3 FOR UPDATE;

-- name: letter
SELECT l.id, l.n, l.scope, l.topic, l.tenant, l.status, l.code, l.recoverable, l.resolved_at, l.resolved_by, l.asked_by,
       (SELECT min(e.n) FROM milepost.dead_letter AS e
        WHERE e.scope = l.scope AND e.topic = l.topic AND e.held_key = l.held_key
          AND coalesce(e.turn, e.n) < coalesce(l.turn, l.n) AND e.status = 'OPEN') AS behind
FROM milepost.dead_letter AS l
WHERE l.n = $1
FOR UPDATE OF l;

-- name: ask
UPDATE milepost.dead_letter
SET status = 'RETRY_PENDING', asked_at = milepost.clock(), asked_by = $2, tries = 0
WHERE id = $1 AND status = 'OPEN'
RETURNING true;

-- name: ignore
UPDATE milepost.dead_letter
SET status = 'IGNORED', resolved_at = milepost.clock(), resolved_by = $2
WHERE id = $1 AND status IN ('OPEN', 'RETRY_PENDING')
RETURNING true;

-- name: wake_followers
-- Letters that did nothing but wait for an earlier one of their key go on by themselves, up to the next that failed.
UPDATE milepost.dead_letter AS l
SET status = 'RETRY_PENDING', asked_at = milepost.clock(), asked_by = $4, tries = 0
WHERE l.scope = $1 AND l.topic = $2 AND l.held_key = $3 AND l.status = 'OPEN' AND l.code = 'KEY_HELD'
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS e
                  WHERE e.scope = l.scope AND e.topic = l.topic AND e.held_key = l.held_key
                    AND coalesce(e.turn, e.n) < coalesce(l.turn, l.n) AND e.status = 'OPEN' AND e.code <> 'KEY_HELD');

-- name: release_hold
DELETE FROM milepost.hold AS h
WHERE h.scope = $1 AND h.topic = $2 AND h.key = $3
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS l
                  WHERE l.scope = h.scope AND l.topic = h.topic AND l.held_key = h.key
                    AND l.status IN ('OPEN', 'RETRY_PENDING'));

-- name: audit
INSERT INTO milepost.audit (id, tenant, actor, kind, act, reason, before, after, evidence)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, $8::jsonb, $9::jsonb);
