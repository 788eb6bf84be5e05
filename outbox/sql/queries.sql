-- The outbox room's statements.

-- name: lock_keys
SELECT count(pg_catalog.pg_advisory_xact_lock(number)) FROM unnest($1::bigint[]) AS numbers (number);

-- The topics are looked at within the insert: an empty table accepts all, a filled one names what exists.
-- Returns nothing when all rows are in, else why none is.
-- name: insert_rows
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[],
                         $8::text[])
        AS r (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
), refused AS (
    SELECT given.topic, topic.name IS NOT NULL AS known, topic.compacted AND given.aggregateid IS NULL AS keyless,
           topic.max_bytes, octet_length(given.payload) AS size, given.type
    FROM given LEFT JOIN milepost.topic ON topic.name = given.topic
    WHERE EXISTS (SELECT FROM milepost.topic)
      AND (topic.name IS NULL OR topic.compacted AND given.aggregateid IS NULL
           OR octet_length(given.payload) > topic.max_bytes)
), inserted AS (
    INSERT INTO milepost.outbox (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
    SELECT id, tenant, topic, aggregatetype, aggregateid, type, payload, headers::jsonb
    FROM given
    WHERE NOT EXISTS (SELECT FROM refused)
)
SELECT topic, known, keyless, max_bytes, size, type FROM refused LIMIT 1;

-- name: known_topics
SELECT name FROM milepost.topic ORDER BY name LIMIT 20;
