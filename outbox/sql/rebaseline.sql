-- Making a restored copy relay again (outbox/rebaseline.py).

-- Whoever relays finds its writes fenced from here on.
-- name: lock_lease
INSERT INTO milepost.outbox_lease (outbox, epoch, expires_at) VALUES ($1, 1, '-infinity')
ON CONFLICT (outbox) DO UPDATE
SET epoch = outbox_lease.epoch + 1, owner = NULL, expires_at = '-infinity';

-- The newest position, the cluster that wrote it and this one. restored_by is the transaction of this cluster that put
-- the position here.
-- name: stored
SELECT position.previous, position.current, position.last_seq, position.system_identifier,
       control.system_identifier AS present, position.restored_by,
       format('%s %s %s', position.previous, position.current, position.last_seq) AS words
FROM (SELECT p.*, p.xmin::text::bigint AS restored_by FROM milepost.outbox_position AS p
      WHERE p.outbox = $1 ORDER BY p.epoch DESC, p.n DESC LIMIT 1) AS position,
     pg_catalog.pg_control_system() AS control;

-- name: begin
SELECT pg_catalog.pg_current_snapshot();

-- A row was sent when the stored position covers it, unless it was written here, after the restore: then its number is
-- that of its own transaction (or a little less than that of a savepoint), and larger than that of the restore. Where a
-- restored row looks like one of those by accident, it is sent once more rather than never.
-- name: count_rows
SELECT count(*) FILTER (WHERE NOT sent) AS unsent, count(*) FILTER (WHERE sent) AS sent
FROM (SELECT (pg_catalog.pg_visible_in_snapshot(xid, $1)
              OR pg_catalog.pg_visible_in_snapshot(xid, $2) AND seq <= $3::bigint)
             AND NOT (xid::text::bigint % 4294967296 > $4::bigint
                      AND xmin::text::bigint >= xid::text::bigint % 4294967296) AS sent
      FROM milepost.outbox) AS row;

-- Numbers that this cluster has not given out yet would be taken for new ones some day.
-- name: quiet_sent
UPDATE milepost.outbox SET xid = '1'
WHERE xid >= pg_catalog.pg_snapshot_xmin($5::pg_snapshot)
  AND (pg_catalog.pg_visible_in_snapshot(xid, $1)
       OR pg_catalog.pg_visible_in_snapshot(xid, $2) AND seq <= $3::bigint)
  AND NOT (xid::text::bigint % 4294967296 > $4::bigint
           AND xmin::text::bigint >= xid::text::bigint % 4294967296);

-- name: requeue_unsent
UPDATE milepost.outbox SET xid = pg_catalog.pg_current_xact_id()
WHERE xid <> '1'
  AND (NOT (pg_catalog.pg_visible_in_snapshot(xid, $1)
            OR pg_catalog.pg_visible_in_snapshot(xid, $2) AND seq <= $3::bigint)
       OR xid::text::bigint % 4294967296 > $4::bigint
          AND xmin::text::bigint >= xid::text::bigint % 4294967296);

-- name: write_position
INSERT INTO milepost.outbox_position (outbox, epoch, n, previous, current, last_seq, system_identifier)
SELECT $1, lease.epoch, 1, $2, $2, 0, control.system_identifier
FROM milepost.outbox_lease AS lease, pg_catalog.pg_control_system() AS control
WHERE lease.outbox = $1;
