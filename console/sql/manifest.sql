-- What a run has done and what it rests on, for its manifest.

-- name: pinned
SELECT r.shape, r.policy, r.input::text AS input, r.input_version, encode(f.sha256, 'hex') AS fingerprint,
       f.parts::text AS parts
FROM milepost.run AS r
LEFT JOIN milepost.fingerprint AS f ON f.run_id = r.id
WHERE r.id = $1;

-- name: done_steps
SELECT s.name, s.iteration, s.kind, s.state, s.undo_of, s.attempt, s.finish_no, s.finished_at, s.result::text AS result
FROM milepost.step AS s
WHERE s.run_id = $1 AND s.state IN ('SUCCEEDED', 'SKIPPED', 'COMPENSATED') AND s.kind NOT IN ('CHOICE', 'LOOP')
ORDER BY s.finish_no NULLS LAST, s.n;

-- name: by_persons
SELECT DISTINCT ON (h.step, h.iteration) h.step, h.iteration, h.data ->> 'by' AS by
FROM milepost.history AS h
WHERE h.run_id = $1 AND h.event IN ('act.mark_succeeded', 'act.skip')
ORDER BY h.step, h.iteration, h.n DESC;

-- name: waits_of
SELECT w.step, w.iteration, w.type, w.key, w.state FROM milepost.wait AS w WHERE w.run_id = $1 ORDER BY w.step, w.generation;

-- name: last_look
SELECT c.state, c.reasons::text AS reasons, c.ended_at
FROM milepost.resume_check AS c
WHERE c.run_id = $1 AND c.state <> 'OPEN'
ORDER BY c.ended_at DESC
LIMIT 1;
