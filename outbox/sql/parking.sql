-- What the relay puts aside, and how it goes on (outbox/parking.py). Only a relay that holds the lease writes here,
-- but for what a person asks for (outbox/unpark.py).

-- name: load_holds
SELECT scope, topic, key, reason FROM milepost.hold WHERE scope IN ('relay:topic', 'relay:key');

-- The letter's id is the event's, so that parking a row twice leaves one letter; another row of the same event, such as
-- one for another topic, gets a letter of its own. Headers are packed as schemas/packing.py does.
-- name: park_rows
INSERT INTO milepost.dead_letter (id, tenant, scope, event_id, topic, seq, key, value, headers, sent_at, stage,
                                  code, message, attempts, first_failed_at, last_failed_at, recoverable)
SELECT CASE WHEN lag(outbox.id) OVER (PARTITION BY outbox.id ORDER BY outbox.seq) IS NOT NULL OR EXISTS (
                SELECT FROM milepost.dead_letter AS other WHERE other.id = outbox.id AND other.seq IS DISTINCT FROM outbox.seq)
            THEN milepost.uuid7() ELSE outbox.id END,
       outbox.tenant, parked.scope, outbox.id, left(outbox.topic, 249), outbox.seq,
       convert_to(outbox.aggregateid, 'UTF8'), outbox.payload, convert_to(coalesce(packed.pairs, '[]')::text, 'UTF8'),
       outbox.created_at, 'RELAY', parked.code, parked.message, 1, milepost.clock(), milepost.clock(),
       parked.recoverable
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::boolean[])
         AS parked (seq, scope, code, message, recoverable)
     JOIN milepost.outbox ON outbox.seq = parked.seq
     CROSS JOIN LATERAL (
         SELECT jsonb_agg(jsonb_build_array(
                    pair.key, translate(encode(convert_to(pair.value, 'UTF8'), 'base64'), E'\n', ''))) AS pairs
         FROM jsonb_each_text(CASE jsonb_typeof(outbox.headers) WHEN 'object' THEN outbox.headers ELSE '{}' END) AS pair
     ) AS packed
ORDER BY outbox.seq
ON CONFLICT (id) DO NOTHING;

-- name: add_hold
INSERT INTO milepost.hold (scope, topic, key, reason) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- A topic that was not found is refused by publish from now on, too.
-- name: mark_missing
INSERT INTO milepost.topic (name, missing) VALUES ($1, true) ON CONFLICT (name) DO UPDATE SET missing = true;

-- Whoever asked for letters of a topic has been answered: it is still denied.
-- name: still_denied
UPDATE milepost.dead_letter SET status = 'OPEN', attempts = attempts + 1, last_failed_at = milepost.clock()
WHERE scope = 'relay:topic' AND topic = $1 AND status = 'RETRY_PENDING';

-- topics ---------------------------------------------------------------------------------------------

-- Letters of a held topic, lowest number first: at most $2, and the first ones up to $3 bytes.
-- name: topic_letters
SELECT id, seq, topic, key, value, headers
FROM (SELECT first.*, sum(octet_length(value)) OVER (ORDER BY seq) - coalesce(octet_length(value), 0) AS bytes_before
      FROM (SELECT id, seq, topic, key, value, headers FROM milepost.dead_letter
            WHERE scope = 'relay:topic' AND topic = $1 AND status IN ('OPEN', 'RETRY_PENDING')
            ORDER BY seq
            LIMIT $2) AS first) AS letter
WHERE coalesce(bytes_before, 0) < $3::bigint
ORDER BY seq;

-- A row that waited for its topic and then proves too large is parked like any other of its kind.
-- name: move_letters
UPDATE milepost.dead_letter
SET scope = parked.scope, code = parked.code, message = parked.message, attempts = attempts + 1,
    last_failed_at = milepost.clock(), status = 'OPEN'
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS parked (id, scope, code, message)
WHERE dead_letter.id = parked.id;

-- name: release_topic
WITH released AS (
    DELETE FROM milepost.hold
    WHERE scope = 'relay:topic' AND topic = $1
      AND NOT EXISTS (SELECT FROM milepost.dead_letter AS letter
                      WHERE letter.scope = 'relay:topic' AND letter.topic = $1
                        AND letter.status IN ('OPEN', 'RETRY_PENDING'))
    RETURNING topic
), found AS (
    UPDATE milepost.topic SET missing = false FROM released WHERE topic.name = released.topic AND topic.missing
)
SELECT true FROM released;

-- Of $1, the held topics of which no letter is open any more, of whatever scope: a mistyped name, say.
-- name: forsaken_topics
SELECT topic FROM milepost.hold
WHERE scope = 'relay:topic' AND topic = ANY ($1::text[])
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS letter
                  WHERE letter.scope IN ('relay:topic', 'relay:key') AND letter.topic = hold.topic
                    AND letter.status IN ('OPEN', 'RETRY_PENDING'));

-- name: asked_topics
SELECT DISTINCT topic FROM milepost.dead_letter WHERE scope = 'relay:topic' AND status = 'RETRY_PENDING';

-- keys -----------------------------------------------------------------------------------------------

-- Held keys that can go on: somebody asked for their first letter, or it only waited for one that is gone, or none is
-- left. With $1 all are looked at, else those of which a letter was asked for.
-- name: due_keys
SELECT hold.topic, hold.key
FROM milepost.hold
LEFT JOIN LATERAL (
    SELECT letter.status, letter.code FROM milepost.dead_letter AS letter
    WHERE letter.scope = 'relay:key' AND letter.topic = hold.topic AND milepost.hold_key(letter.key) = hold.key
      AND letter.status IN ('OPEN', 'RETRY_PENDING')
    ORDER BY letter.seq
    LIMIT 1
) AS head ON true
WHERE hold.scope = 'relay:key'
  AND ($1::boolean OR (hold.topic, hold.key) IN (
          SELECT topic, milepost.hold_key(key) FROM milepost.dead_letter
          WHERE scope = 'relay:key' AND status = 'RETRY_PENDING'))
  AND (head.status IS NULL OR head.status = 'RETRY_PENDING' OR head.code = 'KEY_HELD')
  AND hold.topic <> ALL ($2::text[])
ORDER BY hold.topic, hold.key
LIMIT $3;

-- name: key_letters
SELECT id, seq, topic, key, value, headers, code, status
FROM (SELECT first.*, sum(octet_length(value)) OVER (ORDER BY seq) - coalesce(octet_length(value), 0) AS bytes_before
      FROM (SELECT id, seq, topic, key, value, headers, code, status FROM milepost.dead_letter
            WHERE scope = 'relay:key' AND topic = $1 AND milepost.hold_key(key) = $2
              AND status IN ('OPEN', 'RETRY_PENDING')
            ORDER BY seq
            LIMIT $3) AS first) AS letter
WHERE coalesce(bytes_before, 0) < $4::bigint
ORDER BY seq;

-- Letters that hold nothing and were asked for.
-- name: loose_letters
SELECT id, seq, topic, key, value, headers
FROM (SELECT first.*, sum(octet_length(value)) OVER (ORDER BY seq) - coalesce(octet_length(value), 0) AS bytes_before
      FROM (SELECT id, seq, topic, key, value, headers FROM milepost.dead_letter AS letter
            WHERE scope = 'relay:key' AND status = 'RETRY_PENDING' AND topic <> ALL ($1::text[])
              AND NOT EXISTS (SELECT FROM milepost.hold
                              WHERE hold.scope = 'relay:key' AND hold.topic = letter.topic
                                AND hold.key = milepost.hold_key(letter.key))
            ORDER BY seq
            LIMIT $2) AS first) AS letter
WHERE coalesce(bytes_before, 0) < $3::bigint
ORDER BY seq;

-- What was sent counts, whatever somebody decided about it meanwhile.
-- name: resolve_letters
UPDATE milepost.dead_letter
SET status = 'RESOLVED', resolved_at = milepost.clock(), resolved_by = 'relay'
WHERE id = ANY ($1::uuid[]) AND status <> 'RESOLVED';

-- Letters that were tried again and refused again; how they failed before is kept.
-- name: refuse_letters
WITH parked AS (
    SELECT letter.id, given.code, given.message, letter.attempts, letter.last_failed_at,
           letter.code AS old_code, letter.message AS old_message
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS given (id, code, message)
         JOIN milepost.dead_letter AS letter ON letter.id = given.id
    WHERE letter.status IN ('OPEN', 'RETRY_PENDING')
), kept AS (
    INSERT INTO milepost.letter_failure (letter_id, attempts, at, code, message)
    SELECT id, attempts, last_failed_at, old_code, old_message FROM parked
    ON CONFLICT DO NOTHING
)
UPDATE milepost.dead_letter
SET status = 'OPEN', code = parked.code, message = parked.message, attempts = parked.attempts + 1,
    last_failed_at = milepost.clock()
FROM parked
WHERE dead_letter.id = parked.id;

-- name: release_keys
DELETE FROM milepost.hold
USING unnest($1::text[], $2::bytea[]) AS given (topic, key)
WHERE hold.scope = 'relay:key' AND hold.topic = given.topic AND hold.key = given.key
  AND NOT EXISTS (SELECT FROM milepost.dead_letter AS letter
                  WHERE letter.scope = 'relay:key' AND letter.topic = hold.topic
                    AND milepost.hold_key(letter.key) = hold.key AND letter.status IN ('OPEN', 'RETRY_PENDING'));

-- What Kafka and the settings say about topics -------------------------------------------------------

-- name: load_topics
SELECT name FROM milepost.topic WHERE NOT missing;

-- name: store_topics
INSERT INTO milepost.topic (name, compacted, max_bytes, on_park)
SELECT * FROM unnest($1::text[], $2::boolean[], $3::integer[], $4::text[])
ON CONFLICT (name) DO UPDATE
SET compacted = excluded.compacted, max_bytes = excluded.max_bytes, on_park = excluded.on_park,
    seen_at = clock_timestamp()
WHERE (topic.compacted, topic.max_bytes, topic.on_park)
      IS DISTINCT FROM (excluded.compacted, excluded.max_bytes, excluded.on_park);

-- name: forget_topics
DELETE FROM milepost.topic WHERE name = ANY ($1::text[]) AND NOT missing;
