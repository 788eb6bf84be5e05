-- What became of probes that were asked for.

-- The first answer of a probe after a decision ($4) that settled something, else the latest one.
-- name: settled
SELECT c.decision, c.reason, c.after, c.evidence ->> 'message' AS message
FROM milepost.reconciliation AS c
WHERE c.run_id = $1 AND c.step = $2 AND c.iteration = $3 AND c.drift = ''
  AND c.at >= (SELECT d.at FROM milepost.reconciliation AS d WHERE d.id = $4)
ORDER BY c.decision = 'NONE', CASE WHEN c.decision <> 'NONE' THEN c.at END, c.at DESC
LIMIT 1;
