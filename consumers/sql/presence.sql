-- Who reads for a consumer.

-- name: heard
INSERT INTO milepost.reader (process, consumer, service, name)
SELECT $1::uuid, consumer, $3, $4 FROM unnest($2::text[]) AS consumer
ON CONFLICT (process, consumer) DO UPDATE SET seen_at = excluded.seen_at;

-- Rows of processes that were killed: somebody reads again, or nobody has for a week and so nobody will.
-- name: forget
DELETE FROM milepost.reader
WHERE consumer = ANY ($1::text[]) AND seen_at < milepost.clock() - interval '1 minute'
   OR seen_at < milepost.clock() - interval '7 days';

-- name: left
DELETE FROM milepost.reader WHERE process = $1;
