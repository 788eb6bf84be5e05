-- Publishing from SQL: triggers, and languages that have no library of ours.

-- A UUID version 7 (RFC 9562 section 5.7), on every PostgreSQL alike: 48 bits of milliseconds since 1970, then in
-- rand_a the fraction of the millisecond in 1/4096 (section 6.2, method 3), then 62 random bits of a version 4.
CREATE FUNCTION milepost.uuid7() RETURNS uuid
    LANGUAGE plpgsql VOLATILE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        micros bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000);
        fraction integer := (micros % 1000) * 4096 / 1000;
        bytes bytea := overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send(micros / 1000) FROM 3) FROM 1);
    BEGIN
        bytes := set_byte(bytes, 6, 112 + fraction / 256);
        bytes := set_byte(bytes, 7, fraction % 256);
        RETURN encode(bytes, 'hex')::uuid;
    END
    $$;

-- Refuses what could not be sent later. The SQLSTATE of a refusal is its code.
CREATE FUNCTION milepost.check_event(topic text, type text, key text, headers jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        header record;
    BEGIN
        IF topic IS NULL OR topic !~ '^[a-zA-Z0-9._-]{1,249}$' THEN
            RAISE EXCEPTION 'MP106 milepost.publish(): topic % is no name of a Kafka topic. Use letters, digits, ''.'', ''_'' '
                'and ''-''.', coalesce(quote_literal(topic), 'NULL') USING ERRCODE = 'MP106';
        END IF;
        IF type IS NULL OR type !~ '^[a-z0-9][a-z0-9._-]{0,199}$' OR type LIKE 'milepost.%' THEN
            RAISE EXCEPTION 'MP106 milepost.publish(): type % is not a name of lower case letters, digits, dots and dashes, '
                'or begins with milepost., which is Milepost''s own.', coalesce(quote_literal(type), 'NULL')
                USING ERRCODE = 'MP106';
        END IF;
        IF headers IS NULL OR jsonb_typeof(headers) <> 'object' THEN
            RAISE EXCEPTION 'MP315 milepost.publish(): %, headers is no JSON object of texts.', type
                USING ERRCODE = 'MP315';
        END IF;
        FOR header IN SELECT each.key AS name, jsonb_typeof(each.value) AS kind FROM jsonb_each(headers) AS each LOOP
            IF header.kind <> 'string' THEN
                RAISE EXCEPTION 'MP315 milepost.publish(): %, header ''%'' is a %, and headers are text so that every Kafka '
                    'client reads them. Pass a string.', type, header.name, header.kind USING ERRCODE = 'MP315';
            END IF;
            IF header.name = '' OR lower(header.name) ~ '^(ce_|milepost-)'
                OR lower(header.name) IN ('content-type', 'traceparent', 'tracestate') THEN
                RAISE EXCEPTION 'MP316 milepost.publish(): %, header ''%'' is written by Milepost itself. Use another name, '
                    'or the argument for it.', type, header.name USING ERRCODE = 'MP316';
            END IF;
        END LOOP;
    END
    $$;

-- Writes an event to the outbox in the caller's transaction; it leaves when that commits, or not at all. Returns its id.
-- It runs with its owner's rights, so that who may only call it can publish and can neither read nor change the outbox.
--   payload         body as JSON; or body, as bytes of any kind with their content_type; or tombstone => true for none
--   key             record key, which orders events; needed on a compacted topic and by a tombstone
--   headers         more headers, an object of texts
--   version         of the body; source as CloudEvents has it, by default the type without its last part
--   id              of the event, by default a new one; inboxes apply an id once
--   lock_key        take the key's lock until the transaction ends (READ COMMITTED only), the same that Python takes
--   max_bytes       largest body
CREATE FUNCTION milepost.publish(
        topic text, type text, payload jsonb DEFAULT NULL, key text DEFAULT NULL, headers jsonb DEFAULT '{}',
        tenant text DEFAULT '', version integer DEFAULT 1, source text DEFAULT NULL,
        correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL,
        traceparent text DEFAULT NULL, tracestate text DEFAULT NULL, id uuid DEFAULT NULL,
        body bytea DEFAULT NULL, content_type text DEFAULT 'application/json', tombstone boolean DEFAULT false,
        lock_key boolean DEFAULT false, max_bytes integer DEFAULT 1000000) RETURNS uuid
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
    #variable_conflict use_variable
    DECLARE
        event_id uuid := coalesce(id, milepost.uuid7());
        bytes bytea := coalesce(body, convert_to(payload::text, 'UTF8'));
        own_tenant text := coalesce(tenant, '');
        known milepost.topic%ROWTYPE;
    BEGIN
        PERFORM milepost.check_event(topic, type, key, headers);
        IF num_nonnulls(payload, body) + coalesce(tombstone, false)::integer <> 1 THEN
            RAISE EXCEPTION 'MP317 milepost.publish(): % has % body. Pass one of payload, body and tombstone => true.',
                type, CASE WHEN num_nonnulls(payload, body) = 0 THEN 'no' ELSE 'more than one' END USING ERRCODE = 'MP317';
        END IF;
        IF version < 1 THEN
            RAISE EXCEPTION 'MP106 milepost.publish(): %, version % must be 1 or more.', type, version USING ERRCODE = 'MP106';
        END IF;
        IF lower(content_type) LIKE '%application/cloudevents%' THEN
            -- Its readers would take type, id and tenant from the body, past all that is checked here.
            RAISE EXCEPTION 'MP316 milepost.publish(): %, content_type ''%'' would put a whole event into the body. Milepost '
                'writes type, id and the other attributes into headers; pass the data alone, with its own content_type.',
                type, content_type USING ERRCODE = 'MP316';
        END IF;
        IF body IS NOT NULL AND content_type = 'application/json' THEN
            PERFORM convert_from(body, 'UTF8')::jsonb;  -- what is no JSON that PostgreSQL can hold is refused as such
        END IF;
        IF tombstone AND coalesce(key, '') = '' THEN
            RAISE EXCEPTION 'MP345 milepost.publish(): the tombstone of % has no key, so it deletes nothing. Pass key.', type
                USING ERRCODE = 'MP345';
        END IF;
        SELECT * INTO known FROM milepost.topic WHERE name = publish.topic;
        -- A later migration adds the column missing.
        IF (to_jsonb(known) ->> 'missing')::boolean THEN
            RAISE EXCEPTION 'MP313 milepost.publish(): %: topic ''%'' is unknown. Create it, or correct the name.', type, topic
                USING ERRCODE = 'MP313';
        END IF;
        IF known.compacted AND key IS NULL THEN
            RAISE EXCEPTION 'MP314 milepost.publish(): %: topic ''%'' is compacted, and a record without a key cannot be kept '
                'there. Pass key.', type, topic USING ERRCODE = 'MP314';
        END IF;
        IF octet_length(bytes) > least(max_bytes, known.max_bytes) THEN
            RAISE EXCEPTION 'MP312 milepost.publish(): % for topic ''%'' is % bytes, the limit is %. Publish a reference to '
                'the data instead, or raise the limit.', type, topic, octet_length(bytes), least(max_bytes, known.max_bytes)
                USING ERRCODE = 'MP312';
        END IF;
        IF octet_length(headers::text) + coalesce(octet_length(key), 0) > max_bytes THEN
            RAISE EXCEPTION 'MP312 milepost.publish(): %, its key and headers together, is % bytes, the limit is %. Publish a '
                'reference to the data instead, or raise the limit.', type,
                octet_length(headers::text) + coalesce(octet_length(key), 0), max_bytes USING ERRCODE = 'MP312';
        END IF;
        IF to_regclass('milepost.' || (milepost.partition_of('outbox', clock_timestamp())).name) IS NULL THEN
            RAISE EXCEPTION 'MP410 milepost.publish(): the outbox has no partition for today. Run `milepost migrate`.'
                USING ERRCODE = 'MP410';
        END IF;
        IF lock_key AND key IS NOT NULL THEN
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE EXCEPTION 'MP307 milepost.publish(): lock_key needs READ COMMITTED, because the snapshot would not see '
                    'what the lock waited for.' USING ERRCODE = 'MP307';
            END IF;
            -- A statement of its own, before the row gets its number: the first 64 bits of SHA-256, as publish() in Python.
            PERFORM pg_advisory_xact_lock(('x' || encode(substring(sha256(convert_to(
                format('milepost.key:%s:%s:%s', length(topic), topic, key), 'UTF8')) FROM 1 FOR 8), 'hex'))::bit(64)::bigint);
        END IF;
        INSERT INTO milepost.outbox (id, tenant, topic, aggregatetype, aggregateid, type, payload, headers)
        VALUES (event_id, own_tenant, topic, topic, key, type, bytes, headers || jsonb_strip_nulls(jsonb_build_object(
            'ce_specversion', '1.0',
            'ce_id', event_id,
            'ce_source', coalesce(nullif(source, ''), nullif(substring(type FROM '^(.*)\.[^.]*$'), ''), type),
            'ce_type', type,
            -- In UTC whatever the session's TimeZone is: RFC 3339 with its offset.
            'ce_time', to_char(milepost.clock() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
            'ce_eventversion', version::text,
            'content-type', CASE WHEN NOT tombstone THEN content_type END,
            'ce_tenant', nullif(own_tenant, ''),
            'ce_correlationid', nullif(correlation_id, ''),
            'ce_causationid', nullif(causation_id, ''),
            'traceparent', nullif(traceparent, ''),
            'tracestate', nullif(tracestate, ''),
            'milepost-tombstone', CASE WHEN tombstone THEN 'true' END)));
        RETURN event_id;
    END
    $$;

-- Functions may be called by everybody unless that is taken away.
DO $$
DECLARE
    publish text := 'milepost.publish(text, text, jsonb, text, jsonb, text, integer, text, text, text, text, text, uuid, '
        'bytea, text, boolean, boolean, integer)';
    role text;
BEGIN
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', publish);
    FOREACH role IN ARRAY ARRAY['milepost_owner', 'milepost_runtime'] LOOP
        IF to_regrole(role) IS NOT NULL THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', publish, role);
        END IF;
    END LOOP;
END
$$;

-- Version of the payload, so that the class that reads it days later can bring it up to its own; NULL is that class's.
ALTER TABLE milepost.signal ADD COLUMN version integer;
