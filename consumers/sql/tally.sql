-- What has happened, counted by five minutes: so that nobody has to count a million runs to know how the last week was.

-- One process at a time; where another one is at it, nothing is to be done.
-- name: alone
SELECT pg_try_advisory_xact_lock(hashtextextended('milepost.tally', 0));

-- From where the last pass ended, or a week ago, to the last whole bucket that no open transaction of $1 can still add to.
-- name: place
SELECT coalesce((SELECT max(t.bucket) + interval '5 minutes' FROM milepost.tally AS t WHERE t.what = 'tallied'),
                date_bin('5 minutes', milepost.clock() - interval '7 days', 'epoch')) AS begins,
       date_bin('5 minutes', milepost.clock() - $1::interval, 'epoch') AS ends;

-- Runs that began and ended; acts that persons asked for; and how long it took, in seconds, until what had stood in front
-- of a person, or whose outcome nobody knew, went on.
-- name: count
INSERT INTO milepost.tally (bucket, tenant, saga, what, amount, seconds)
SELECT date_bin('5 minutes', found.at, 'epoch'), found.tenant, found.saga, found.what, count(*), sum(found.seconds)
FROM (
    SELECT r.finished_at AS at, r.tenant, r.saga, 'run.' || r.state AS what,
           extract(epoch FROM r.finished_at - r.created_at) AS seconds
    FROM milepost.run AS r
    WHERE r.finished_at >= $1 AND r.finished_at < $2
    UNION ALL
    SELECT r.created_at, r.tenant, r.saga, 'started', 0
    FROM milepost.run AS r
    WHERE r.created_at >= $1 AND r.created_at < $2
    UNION ALL
    SELECT q.answered_at, q.tenant, r.saga, 'act.' || q.what, coalesce(extract(epoch FROM q.answered_at - h.at), 0)
    FROM milepost.request AS q
    JOIN milepost.run AS r ON r.id = q.run_id
    LEFT JOIN LATERAL (
        SELECT max(e.at) AS at FROM milepost.history AS e
        WHERE e.run_id = q.run_id AND e.step IS NOT DISTINCT FROM coalesce(q.step, e.step) AND e.at <= q.answered_at
          AND e.event IN ('step.manual_required', 'step.unknown', 'run.waiting', 'step.failed')
    ) AS h ON true
    WHERE q.state = 'ACCEPTED' AND q.answered_at >= $1 AND q.answered_at < $2
    UNION ALL
    SELECT c.at, c.tenant, r.saga, 'settled', coalesce(extract(epoch FROM c.at - h.at), 0)
    FROM milepost.reconciliation AS c
    JOIN milepost.run AS r ON r.id = c.run_id
    LEFT JOIN LATERAL (
        SELECT max(e.at) AS at FROM milepost.history AS e
        WHERE e.run_id = c.run_id AND e.step = c.step AND e.at <= c.at AND e.event = 'step.unknown'
    ) AS h ON true
    WHERE c.at >= $1 AND c.at < $2 AND c.after NOT IN ('UNKNOWN', 'RECONCILING', 'MANUAL_REQUIRED')
      AND c.drift = ''
) AS found
GROUP BY 1, 2, 3, 4
ON CONFLICT (bucket, tenant, saga, what) DO NOTHING;

-- name: mark
INSERT INTO milepost.tally (bucket, tenant, saga, what, amount, seconds)
VALUES ($1::timestamptz - interval '5 minutes', '', '', 'tallied', 0, 0)
ON CONFLICT (bucket, tenant, saga, what) DO NOTHING;

-- name: forget
DELETE FROM milepost.tally WHERE bucket < milepost.clock() - interval '35 days';
