-- The outbox room's statements.

-- name: lock_keys
SELECT count(pg_catalog.pg_advisory_xact_lock(number)) FROM unnest($1::bigint[]) AS numbers (number);

-- What the relay knows of topics is looked at within the insert; a topic that it has not met yet is accepted. It is
-- about events; a service's own messages go to topics that `milepost serve` makes, whoever keeps that table.
-- Returns nothing when all rows are in, else why none is.
-- name: insert_rows
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[],
                         $8::text[])
        AS r (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
), refused AS (
    SELECT given.topic, NOT topic.missing AS known, topic.compacted AND given.aggregateid IS NULL AS keyless,
           topic.max_bytes, octet_length(given.payload) AS size, given.type
    FROM given JOIN milepost.topic ON topic.name = given.topic
    WHERE given.type NOT LIKE 'milepost.%'
      AND (topic.missing OR topic.compacted AND given.aggregateid IS NULL
           OR octet_length(given.payload) > topic.max_bytes)
), inserted AS (
    INSERT INTO milepost.outbox (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
    SELECT id, tenant, topic, aggregatetype, aggregateid, type, payload, headers::jsonb
    FROM given
    WHERE NOT EXISTS (SELECT FROM refused)
)
SELECT topic, known, keyless, max_bytes, size, type FROM refused LIMIT 1;

-- One row, for most transactions publish one event: half the cost of insert_rows. Nothing is written when it is refused,
-- and insert_rows says why. RETURNING would have the server prepare a projection for the partition each time.
-- name: insert_row
INSERT INTO milepost.outbox (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
SELECT $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bytea, $8::text::jsonb
WHERE (SELECT topic.missing OR topic.compacted AND $5::text IS NULL OR octet_length($7::bytea) > topic.max_bytes
       FROM milepost.topic WHERE topic.name = $3::text) IS NOT TRUE
   OR $6::text LIKE 'milepost.%';

-- name: known_topics
SELECT name FROM milepost.topic WHERE NOT missing ORDER BY name LIMIT 20;

-- lease ----------------------------------------------------------------------------------------------

-- name: ensure_lease
INSERT INTO milepost.outbox_lease (outbox, expires_at) VALUES ($1, '-infinity') ON CONFLICT DO NOTHING;

-- name: take_lease
UPDATE milepost.outbox_lease
SET owner = $2, epoch = epoch + 1, expires_at = milepost.clock() + $3::interval
WHERE outbox = $1 AND expires_at <= milepost.clock()
RETURNING epoch, clock_timestamp() AS at;

-- name: renew_lease
UPDATE milepost.outbox_lease SET expires_at = milepost.clock() + $4::interval
WHERE outbox = $1 AND owner = $2 AND epoch = $3
RETURNING true;

-- name: release_lease
UPDATE milepost.outbox_lease SET owner = NULL, expires_at = '-infinity'
WHERE outbox = $1 AND owner = $2 AND epoch = $3;

-- name: fence
SELECT true FROM milepost.outbox_lease WHERE outbox = $1 AND epoch = $2 FOR UPDATE;

-- position -------------------------------------------------------------------------------------------

-- name: load_position
SELECT epoch, n, previous, current, last_seq, system_identifier
FROM milepost.outbox_position
WHERE outbox = $1
ORDER BY outbox_position.epoch DESC, outbox_position.n DESC
LIMIT 1;

-- name: system_identifier
SELECT system_identifier FROM pg_catalog.pg_control_system();

-- This write is also the durability barrier before a page is sent: what the page holds was committed before $8, a place
-- in the server's log. Where the log is flushed that far already, and nobody else has to have it, nothing is waited for.
-- name: write_position
WITH durable AS MATERIALIZED (
    SELECT CASE WHEN pg_catalog.pg_current_wal_flush_lsn() >= $8::text::pg_lsn
                     AND pg_catalog.current_setting('synchronous_standby_names') = ''
                THEN pg_catalog.set_config('synchronous_commit', 'off', true)
                WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local')
                THEN pg_catalog.set_config('synchronous_commit', 'on', true) END
)
INSERT INTO milepost.outbox_position (outbox, epoch, n, previous, current, last_seq, system_identifier)
SELECT $1, $2, $3, $4, $5, $6, $7 FROM durable;

-- From where the last trim ended: what it deleted stays in the index for as long as somebody holds an old snapshot.
-- name: trim_positions
DELETE FROM milepost.outbox_position
WHERE outbox = $1 AND (outbox_position.epoch, outbox_position.n) >= ($4::bigint, $5::bigint)
  AND (outbox_position.epoch, outbox_position.n) < ($2::bigint, $3::bigint);

-- reading --------------------------------------------------------------------------------------------

-- While rows stream in, statistics lag behind; what reads the outbox must not depend on them.
-- name: force_plan
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL work_mem = '32MB';
SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL jit = off;

-- The same for all statements of a connection, where it is known to be the same connection each time.
-- name: force_session
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET plan_cache_mode = force_generic_plan;
SET work_mem = '32MB';
SET max_parallel_workers_per_gather = 0;
SET jit = off;

-- name: begin_read
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL work_mem = '32MB';
SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL jit = off;

-- name: end_read
COMMIT;

-- Rows that this statement's snapshot sees and the previous one ($1 its xmax, $2 its running transactions) did not:
-- two index scans, never an OR. More rows than $3 or bytes than $4 are only announced; find_floors and read_page
-- bring them in pages. The first row, of number 0, says in topic whether the rest fitted, and in headers the snapshot;
-- in aggregateid a place in the server's log behind all that the snapshot sees, NULL where the log is flushed that far
-- and nobody else has to have it.
-- name: read_new
WITH candidate AS MATERIALIZED (
    (SELECT seq, topic, aggregateid, payload, headers FROM milepost.outbox
     WHERE xid >= $1::xid8 ORDER BY xid LIMIT $3::bigint + 1)
    UNION ALL
    (SELECT seq, topic, aggregateid, payload, headers FROM milepost.outbox
     WHERE xid = ANY ($2::xid8[]) ORDER BY xid LIMIT $3::bigint + 1)
), measure AS MATERIALIZED (
    SELECT count(*) <= $3::bigint AND coalesce(sum(octet_length(payload)), 0) <= $4::bigint AS fits FROM candidate
)
SELECT 0::bigint AS seq, measure.fits::text AS topic,
       CASE WHEN pg_catalog.pg_current_wal_flush_lsn() < log.place
                 OR pg_catalog.current_setting('synchronous_standby_names') <> ''
            THEN log.place::text END AS aggregateid,
       NULL::bytea AS payload, pg_catalog.pg_current_snapshot()::text AS headers
FROM measure, (SELECT pg_catalog.pg_current_wal_insert_lsn() AS place OFFSET 0) AS log
UNION ALL
SELECT seq, topic, aggregateid, payload, headers::text FROM candidate WHERE (SELECT fits FROM measure)
ORDER BY seq;

-- How many rows lie between two snapshots after $4, from where, and how large the largest body is: those of
-- transactions that began after the previous snapshot, and the late ones of transactions that were already running
-- then. seq + 0 keeps the index on seq out of it, which would be walked from the oldest retained row.
-- name: find_floors
SELECT fresh.count, fresh.floor, late.count, late.floor, coalesce(greatest(fresh.largest, late.largest), 0)
FROM (SELECT count(*), min(seq + 0) AS floor, max(octet_length(payload)) AS largest FROM milepost.outbox
      WHERE xid >= $1::xid8 AND xid < $2::xid8 AND seq + 0 > $4::bigint
        AND pg_catalog.pg_visible_in_snapshot(xid, $5)) AS fresh,
     (SELECT count(*), min(seq + 0) AS floor, max(octet_length(payload)) AS largest FROM milepost.outbox
      WHERE xid = ANY ($3::xid8[]) AND seq + 0 > $4::bigint
        AND pg_catalog.pg_visible_in_snapshot(xid, $5)) AS late;

-- One page of a large tick. Fresh rows come by the index on seq, because nothing else can serve their conditions;
-- few late ones ($4) by the index on xid, because seq + 0 hides the other.
-- name: read_page
WITH fresh AS (
    SELECT seq, topic, aggregateid, payload, headers FROM milepost.outbox
    WHERE seq > $1::bigint
      AND pg_catalog.pg_visible_in_snapshot(xid, $3)
      AND NOT pg_catalog.pg_visible_in_snapshot(xid, $2)
      AND xid <> ALL ($4::xid8[])
    ORDER BY seq
    LIMIT $6::bigint
), late AS (
    SELECT seq, topic, aggregateid, payload, headers FROM milepost.outbox
    WHERE xid = ANY ($4::xid8[]) AND seq + 0 > $5::bigint
      AND pg_catalog.pg_visible_in_snapshot(xid, $3)
    ORDER BY seq + 0
    LIMIT $6::bigint
), page AS (
    SELECT both_kinds.*,
           sum(octet_length(payload)) OVER (ORDER BY seq) - coalesce(octet_length(payload), 0) AS bytes_before
    FROM (SELECT * FROM fresh UNION ALL SELECT * FROM late) AS both_kinds
    ORDER BY seq
    LIMIT $6::bigint
)
SELECT seq, topic, aggregateid, payload, headers::text
FROM page
WHERE coalesce(bytes_before, 0) < $7::bigint
ORDER BY seq;

-- The same where no late row is to be mixed in and no page can grow too large; it takes two thirds of the time.
-- name: read_plain
SELECT seq, topic, aggregateid, payload, headers::text FROM milepost.outbox
WHERE seq > $1::bigint
  AND pg_catalog.pg_visible_in_snapshot(xid, $3)
  AND NOT pg_catalog.pg_visible_in_snapshot(xid, $2)
ORDER BY seq
LIMIT $4::bigint;

-- state ----------------------------------------------------------------------------------------------

-- Rows that a position leaves unsent, counted up to $5 each way, and the age of the oldest of them in seconds.
-- name: oldest_unsent
WITH unsent AS MATERIALIZED (
    (SELECT created_at FROM milepost.outbox
     WHERE xid >= $1::xid8 AND NOT (seq <= $4::bigint AND pg_catalog.pg_visible_in_snapshot(xid, $3))
     ORDER BY xid LIMIT $5::bigint)
    UNION ALL
    (SELECT created_at FROM milepost.outbox
     WHERE xid = ANY ($2::xid8[]) AND NOT (seq <= $4::bigint AND pg_catalog.pg_visible_in_snapshot(xid, $3))
     ORDER BY xid LIMIT $5::bigint)
)
SELECT count(*) AS lag, extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS oldest_seconds FROM unsent;

-- name: lease_state
SELECT owner, epoch, expires_at > milepost.clock() AS held
FROM milepost.outbox_lease WHERE outbox = $1;
