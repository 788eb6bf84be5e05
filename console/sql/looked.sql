-- What was found out about a run without a person.

-- Answers of probes ($1: the run) have no drift; the other rows are decisions of recovery. The youngest 500, the oldest first.
-- name: looked_at
SELECT l.* FROM (
    SELECT c.id, c.step, c.iteration, c.at, c.drift, c.decision, c.before, c.after, c.actor AS by, c.reason,
           c.evidence::text AS evidence
    FROM milepost.reconciliation AS c
    WHERE c.run_id = $1
    ORDER BY c.at DESC, c.id DESC
    LIMIT 500
) AS l
ORDER BY l.at, l.id;
