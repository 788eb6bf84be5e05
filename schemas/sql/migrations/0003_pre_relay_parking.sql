-- What the relay has put aside can be sent again, and what it knows of topics is kept.

-- The relay has looked for this topic by name and not found it: publish refuses it until the relay finds it. A topic
-- without a row is accepted.
ALTER TABLE milepost.topic ADD COLUMN missing boolean NOT NULL DEFAULT false;

-- hold.key of a record key: itself, or its hash where it would not fit into an index.
CREATE FUNCTION milepost.hold_key(key bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN pg_catalog.octet_length(key) > 1000 THEN pg_catalog.sha256(key) ELSE key END $$;

CREATE INDEX dead_letter_relay_key_idx ON milepost.dead_letter (topic, milepost.hold_key(key), seq)
    WHERE scope = 'relay:key' AND status IN ('OPEN', 'RETRY_PENDING');
CREATE INDEX dead_letter_relay_topic_idx ON milepost.dead_letter (topic, seq)
    WHERE scope = 'relay:topic' AND status IN ('OPEN', 'RETRY_PENDING');
