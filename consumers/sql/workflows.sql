-- What processes know of their sagas.

-- Of several versions the newest counts; nothing is written where nothing has changed.
-- name: register
INSERT INTO milepost.workflow AS w (service, saga, version, severity)
SELECT $1::text, d.saga, d.version, d.severity
FROM unnest($2::text[], $3::integer[], $4::text[]) AS d(saga, version, severity)
ORDER BY d.saga
ON CONFLICT (service, saga) DO UPDATE
SET version = excluded.version, severity = excluded.severity, since = milepost.clock()
WHERE w.version <= excluded.version AND (w.version, w.severity) <> (excluded.version, excluded.severity);
