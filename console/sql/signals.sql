-- name: list_signals
SELECT s.id, s.tenant, s.type, s.key, s.source, s.event_id, s.received_at, s.expires_at, s.matched_at, s.run_id,
       r.saga, r.key AS run_key, (SELECT milepost.clock()) AS now
FROM milepost.signal AS s
LEFT JOIN milepost.run AS r ON r.id = s.run_id
WHERE (NOT $1::boolean OR s.matched_at IS NULL) AND ($2::text IS NULL OR s.type = $2)
ORDER BY s.received_at DESC, s.id DESC
LIMIT $3;
