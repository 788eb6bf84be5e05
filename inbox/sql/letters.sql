-- Dead letters of consumers, and the keys that they hold.

-- name: held
-- A hold that is being worked off is waited for: it is then gone, or its next letters stand behind it.
SELECT h.key
FROM milepost.hold AS h
WHERE h.scope = $1 AND h.topic = $2 AND h.key = ANY ($3::bytea[])
ORDER BY h.key
FOR SHARE;

-- name: hold_keys
-- The update changes nothing, and locks: who works the hold off has to see the letter that follows here.
INSERT INTO milepost.hold AS h (scope, topic, key, reason)
SELECT $1, $2, given.key, given.reason
FROM unnest($3::bytea[], $4::text[]) AS given (key, reason)
ORDER BY given.key
ON CONFLICT (scope, topic, key) DO UPDATE SET since = h.since;

-- name: mark_parked
UPDATE milepost.inbox SET outcome = 'PARKED' WHERE consumer = $1 AND event_id = ANY ($2::uuid[]);

-- name: insert_letters
INSERT INTO milepost.dead_letter (id, tenant, scope, event_id, topic, partition, "offset", key, value, headers,
                                  sent_at, stage, code, message, attempts, first_failed_at, last_failed_at,
                                  recoverable, held_key)
SELECT given.id, given.tenant, $1, given.event_id, given.topic, given.partition, given."offset", given.key,
       given.value, given.headers, given.sent_at, given.stage, given.code, given.message, given.attempts,
       coalesce(given.first_at, clock.now), clock.now, given.recoverable, given.held_key
FROM unnest($2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::integer[], $7::bigint[], $8::bytea[], $9::bytea[],
            $10::bytea[], $11::timestamptz[], $12::text[], $13::text[], $14::text[], $15::integer[],
            $16::timestamptz[], $17::boolean[], $18::bytea[])
         WITH ORDINALITY AS given (id, tenant, event_id, topic, partition, "offset", key, value, headers, sent_at, stage, code,
                   message, attempts, first_at, recoverable, held_key, place),
     (SELECT milepost.clock() AS now) AS clock
ORDER BY given.place
ON CONFLICT (id) DO NOTHING
RETURNING id;
