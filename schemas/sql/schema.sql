-- Milepost's tables. This file equals all migrations applied in order; a test holds it so.
-- SQL reads time only through milepost.clock(), which the test kit replaces; outbox.created_at alone uses
-- clock_timestamp(), because partitions must not follow a stopped clock.

CREATE SCHEMA milepost;

CREATE FUNCTION milepost.clock() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() $$;

CREATE TABLE milepost.migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- outbox ---------------------------------------------------------------------------------------------

CREATE TABLE milepost.topic (
    name text PRIMARY KEY,
    compacted boolean NOT NULL DEFAULT false,
    max_bytes integer,
    on_park text NOT NULL DEFAULT 'continue' CHECK (on_park IN ('continue', 'hold')),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE SEQUENCE milepost.outbox_seq;

-- Insert-only. The columns aggregatetype, aggregateid, type and payload carry Debezium's names.
CREATE TABLE milepost.outbox (
    id uuid NOT NULL,
    seq bigint NOT NULL DEFAULT nextval('milepost.outbox_seq'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant text NOT NULL DEFAULT '',
    topic text NOT NULL,
    aggregatetype text NOT NULL,
    aggregateid text,
    type text NOT NULL,
    payload bytea,
    headers jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE INDEX outbox_seq_idx ON milepost.outbox (seq);
CREATE INDEX outbox_xid_idx ON milepost.outbox (xid);

CREATE TABLE milepost.outbox_lease (
    outbox text PRIMARY KEY,
    owner uuid,
    epoch bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL
);

-- Insert-only and short: one row is written before and one after every page that is sent.
CREATE TABLE milepost.outbox_position (
    outbox text NOT NULL,
    epoch bigint NOT NULL,
    n bigint NOT NULL,
    previous pg_snapshot NOT NULL,
    current pg_snapshot NOT NULL,
    last_seq bigint NOT NULL,
    system_identifier bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (outbox, epoch, n)
);

-- inbox ----------------------------------------------------------------------------------------------

CREATE TABLE milepost.inbox (
    consumer text NOT NULL,
    event_id uuid NOT NULL,
    tenant text NOT NULL DEFAULT '',
    fingerprint bytea NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('APPLIED', 'PARKED')),
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (consumer, event_id)
);

CREATE TABLE milepost.consumer_position (
    consumer text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    next_offset bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (consumer, topic, partition)
);

-- Committed before an event is handled alone, so that an event that kills its process is counted.
CREATE TABLE milepost.inbox_attempt (
    consumer text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    first_at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (consumer, topic, partition)
);

-- scope is 'relay:topic', 'relay:key' or 'consumer:NAME'; key is the topic or the record key in bytes.
CREATE TABLE milepost.hold (
    scope text NOT NULL,
    topic text NOT NULL,
    key bytea NOT NULL,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (scope, topic, key)
);

CREATE TABLE milepost.dead_letter (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    scope text NOT NULL,
    event_id uuid NOT NULL,
    topic text NOT NULL,
    partition integer,
    "offset" bigint,
    seq bigint,
    key bytea,
    value bytea,
    headers bytea NOT NULL,
    sent_at timestamptz,
    stage text NOT NULL CHECK (stage IN ('RELAY', 'DECODE', 'HANDLE')),
    code text NOT NULL,
    message text NOT NULL,
    attempts integer NOT NULL,
    first_failed_at timestamptz NOT NULL,
    last_failed_at timestamptz NOT NULL,
    recoverable boolean NOT NULL,
    status text NOT NULL DEFAULT 'OPEN' CHECK (status IN ('OPEN', 'RETRY_PENDING', 'RESOLVED', 'IGNORED'))
);
CREATE INDEX dead_letter_open_idx ON milepost.dead_letter (scope, topic, first_failed_at)
    WHERE status IN ('OPEN', 'RETRY_PENDING');

CREATE TABLE milepost.signal (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    source text NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    key text NOT NULL,
    payload jsonb NOT NULL,
    traceparent text,
    received_at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL,
    run_id uuid,
    matched_at timestamptz,
    CHECK ((run_id IS NULL) = (matched_at IS NULL)),
    UNIQUE (tenant, source, event_id)
);
CREATE INDEX signal_unmatched_idx ON milepost.signal (tenant, type, key, received_at) WHERE matched_at IS NULL;

CREATE TABLE milepost.wait (
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    generation bigint NOT NULL,
    tenant text NOT NULL DEFAULT '',
    type text NOT NULL,
    key text NOT NULL,
    state text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'MATCHED', 'CLOSED')),
    broadcast boolean NOT NULL DEFAULT false,
    signal_id uuid,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    CHECK ((state = 'MATCHED') = (signal_id IS NOT NULL)),
    PRIMARY KEY (run_id, step, iteration, generation)
);
CREATE INDEX wait_open_idx ON milepost.wait (tenant, type, key, since) WHERE state = 'OPEN';

-- sagas ----------------------------------------------------------------------------------------------

-- Outlives the run: starting again after retention finds the old outcome instead of running twice.
CREATE TABLE milepost.run_key (
    tenant text NOT NULL DEFAULT '',
    saga text NOT NULL,
    key text NOT NULL,
    run_id uuid NOT NULL,
    input_hash bytea NOT NULL,
    outcome text,
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (tenant, saga, key)
);

-- version counts every change of the run or one of its steps, except the waker's pushes of wake_at.
CREATE TABLE milepost.run (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL,
    saga text NOT NULL,
    key text NOT NULL,
    definition integer NOT NULL,
    shape text NOT NULL,
    policy text NOT NULL,
    input jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'WAITING', 'SUCCEEDED', 'FAILED',
        'COMPENSATING', 'COMPENSATED', 'COMPENSATION_FAILED', 'MANUAL_REQUIRED', 'CANCELLED')),
    code text,
    cause text,
    version bigint NOT NULL DEFAULT 1,
    history_n integer NOT NULL DEFAULT 0,
    finish_n integer NOT NULL DEFAULT 0,
    wake_at timestamptz,
    correlation_id text NOT NULL,
    traceparent text,
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    updated_at timestamptz NOT NULL DEFAULT milepost.clock(),
    finished_at timestamptz,
    CHECK ((state IN ('SUCCEEDED', 'FAILED', 'COMPENSATED', 'CANCELLED')) = (wake_at IS NULL)),
    CHECK ((finished_at IS NULL) = (wake_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX run_wake_idx ON milepost.run (wake_at) WHERE wake_at IS NOT NULL;

-- A row exists from when the step becomes runnable, n counts them; an undo is a row of kind UNDO.
CREATE TABLE milepost.step (
    run_id uuid NOT NULL,
    name text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    n integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('STEP', 'TX', 'WAIT', 'UNDO')),
    state text NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'RETRY_PENDING', 'UNKNOWN',
        'RECONCILING', 'WAITING', 'SKIPPED', 'MANUAL_REQUIRED', 'CANCELLED', 'COMPENSATION_PENDING',
        'COMPENSATING', 'COMPENSATED', 'COMPENSATION_FAILED')),
    undo_of text,
    queue text NOT NULL DEFAULT 'default',
    attempt integer NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    generation bigint NOT NULL DEFAULT 0,
    worker uuid,
    wake_at timestamptz,
    doubt boolean NOT NULL DEFAULT false,
    doubt_at timestamptz,
    result jsonb,
    code text,
    message text,
    finish_no integer,
    probes integer NOT NULL DEFAULT 0,
    nudges integer NOT NULL DEFAULT 0,
    since timestamptz NOT NULL,
    first_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (run_id, name, iteration),
    CHECK ((state IN ('SUCCEEDED', 'FAILED', 'SKIPPED', 'CANCELLED', 'COMPENSATED')) = (wake_at IS NULL)),
    CHECK ((state IN ('RUNNING', 'RECONCILING', 'COMPENSATING')) = (worker IS NOT NULL)),
    CHECK ((kind = 'UNDO') = (undo_of IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX step_wake_idx ON milepost.step (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX step_worker_idx ON milepost.step (worker) WHERE worker IS NOT NULL;

CREATE TABLE milepost.history (
    run_id uuid NOT NULL,
    n integer NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    event text NOT NULL,
    step text,
    attempt integer,
    data jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (run_id, n, at)
) PARTITION BY RANGE (at);

CREATE TABLE milepost.audit (
    id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    tenant text NOT NULL DEFAULT '',
    actor text NOT NULL,
    act text NOT NULL,
    run_id uuid,
    step text,
    reason text NOT NULL,
    before jsonb NOT NULL DEFAULT '{}',
    after jsonb NOT NULL DEFAULT '{}',
    evidence jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE INDEX audit_run_idx ON milepost.audit (run_id);

CREATE TABLE milepost.reconciliation (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    run_id uuid NOT NULL,
    step text NOT NULL,
    before text NOT NULL,
    evidence jsonb NOT NULL,
    decision text NOT NULL,
    after text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    correlation_id text NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock()
);
CREATE INDEX reconciliation_run_idx ON milepost.reconciliation (run_id);

-- One lease row per process; definitions are 'saga/version' and queues what it serves.
CREATE TABLE milepost.worker (
    id uuid PRIMARY KEY,
    service text NOT NULL,
    name text NOT NULL,
    roles text[] NOT NULL,
    queues text[] NOT NULL,
    definitions text[] NOT NULL,
    started_at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL
);

-- partitions -----------------------------------------------------------------------------------------

-- Names the partition of a table that holds an instant: daily for outbox, monthly for the others.
CREATE FUNCTION milepost.partition_of(parent text, instant timestamptz,
        OUT name text, OUT lower_bound timestamptz, OUT upper_bound timestamptz)
    LANGUAGE sql IMMUTABLE
    AS $$
        SELECT parent || '_' || to_char(bounds.low, CASE parent WHEN 'outbox' THEN 'YYYYMMDD' ELSE 'YYYYMM' END),
               bounds.low AT TIME ZONE 'UTC',
               (bounds.low + CASE parent WHEN 'outbox' THEN interval '1 day' ELSE interval '1 month' END)
                   AT TIME ZONE 'UTC'
        FROM (SELECT date_trunc(CASE parent WHEN 'outbox' THEN 'day' ELSE 'month' END,
                                instant AT TIME ZONE 'UTC') AS low) AS bounds
    $$;

-- Builds the partitions for the coming days aside and attaches them; returns the names of new ones.
CREATE FUNCTION milepost.make_partitions(days integer,
        parents text[] DEFAULT ARRAY['outbox', 'history', 'audit']) RETURNS SETOF text
    LANGUAGE plpgsql
    AS $$
    DECLARE
        parent text;
        part record;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('milepost.make_partitions', 0));
        FOREACH parent IN ARRAY parents LOOP
            FOR part IN
                SELECT DISTINCT p.name, p.lower_bound, p.upper_bound
                FROM generate_series(-1, days) AS d(n),
                     LATERAL milepost.partition_of(parent, clock_timestamp() + make_interval(days => d.n)) AS p
                ORDER BY p.lower_bound
            LOOP
                CONTINUE WHEN to_regclass(format('milepost.%I', part.name)) IS NOT NULL;
                EXECUTE format('CREATE TABLE milepost.%I (LIKE milepost.%I INCLUDING ALL)', part.name, parent);
                EXECUTE format('ALTER TABLE milepost.%I ATTACH PARTITION milepost.%I FOR VALUES FROM (%L) TO (%L)',
                               parent, part.name, part.lower_bound, part.upper_bound);
                RETURN NEXT part.name;
            END LOOP;
        END LOOP;
    END
    $$;

-- roles ----------------------------------------------------------------------------------------------

-- The owner migrates and makes partitions; the runtime role can change neither what must only grow nor the schema.
-- Both are made where the migrating user may; a server that manages roles elsewhere may lack them.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['milepost_owner', 'milepost_runtime'] LOOP
        CONTINUE WHEN to_regrole(role) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN
            NULL;
        END;
    END LOOP;
END
$$;

-- Partitions need no grants of their own: rows reach them through their parent.
DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON SCHEMA milepost TO milepost_owner;
        GRANT ALL ON ALL TABLES IN SCHEMA milepost TO milepost_owner;
        GRANT ALL ON ALL SEQUENCES IN SCHEMA milepost TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA milepost TO milepost_runtime;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA milepost TO milepost_runtime;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA milepost TO milepost_runtime;
        REVOKE UPDATE, DELETE ON milepost.audit, milepost.history, milepost.outbox, milepost.reconciliation
            FROM milepost_runtime;
        REVOKE INSERT, UPDATE, DELETE ON milepost.migration FROM milepost_runtime;
    END IF;
END
$$;
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
-- Dead letters can be redriven and ignored.

-- n is the letter's short name, and the order in which letters of a held key are worked off; held_key is the key that
-- the letter holds or waits behind, as in hold.key. asked_by is who wants it handled again; tries counts those of this
-- redrive, each committed before it begins.
ALTER TABLE milepost.dead_letter
    ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY,
    ADD COLUMN held_key bytea,
    ADD COLUMN tries integer NOT NULL DEFAULT 0,
    ADD COLUMN asked_at timestamptz,
    ADD COLUMN asked_by text,
    ADD COLUMN resolved_at timestamptz,
    ADD COLUMN resolved_by text;

-- Letters of the relay (stage RELAY) are worked off by the relay, which asks nobody.
ALTER TABLE milepost.dead_letter
    ADD CONSTRAINT dead_letter_asked_check CHECK (
        stage = 'RELAY' OR status <> 'RETRY_PENDING' OR (asked_at IS NOT NULL AND asked_by IS NOT NULL)),
    ADD CONSTRAINT dead_letter_resolved_check CHECK (
        stage = 'RELAY' OR (status IN ('RESOLVED', 'IGNORED')) = (resolved_at IS NOT NULL AND resolved_by IS NOT NULL)),
    ADD CONSTRAINT dead_letter_closed_check CHECK (
        resolved_at IS NULL OR status IN ('RESOLVED', 'IGNORED'));

CREATE UNIQUE INDEX dead_letter_n_idx ON milepost.dead_letter (n);
CREATE INDEX dead_letter_pending_idx ON milepost.dead_letter (scope, n) WHERE status = 'RETRY_PENDING';
CREATE INDEX dead_letter_held_idx ON milepost.dead_letter (scope, topic, held_key, n)
    WHERE held_key IS NOT NULL AND status IN ('OPEN', 'RETRY_PENDING');
-- An inbox row outlives its retention while a letter of it is open.
CREATE INDEX dead_letter_event_idx ON milepost.dead_letter (event_id) WHERE status IN ('OPEN', 'RETRY_PENDING');

-- How a letter failed before it failed as dead_letter says now; kept when it is redriven.
CREATE TABLE milepost.letter_failure (
    letter_id uuid NOT NULL,
    attempts integer NOT NULL,
    at timestamptz NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    PRIMARY KEY (letter_id, attempts)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.letter_failure TO milepost_owner;
        GRANT ALL ON SEQUENCE milepost.dead_letter_n_seq TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.letter_failure TO milepost_runtime;
        GRANT USAGE ON SEQUENCE milepost.dead_letter_n_seq TO milepost_runtime;
    END IF;
END
$$;
-- Webhooks: verified and stored before the provider hears 2xx, turned into events later.

-- The first body of a provider's event counts; conflicts tells how often another one came under the same id. A row is
-- live while it is to be worked on: RECEIVED until it is taken, PROCESSING until the lease of whoever took it ends.
CREATE TABLE milepost.webhook (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL,
    provider text NOT NULL,
    event_id text NOT NULL,
    path text NOT NULL,
    headers jsonb NOT NULL,
    body bytea NOT NULL,
    fingerprint bytea NOT NULL,
    traceparent text,
    state text NOT NULL DEFAULT 'RECEIVED'
        CHECK (state IN ('RECEIVED', 'PROCESSING', 'PROCESSED', 'FAILED', 'IGNORED')),
    fence bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    code text,
    message text,
    published uuid,
    conflicts integer NOT NULL DEFAULT 0,
    conflict_at timestamptz,
    received_at timestamptz NOT NULL DEFAULT milepost.clock(),
    finished_at timestamptz,
    wake_at timestamptz,
    CHECK ((state IN ('RECEIVED', 'PROCESSING')) = (wake_at IS NOT NULL)),
    CHECK ((state IN ('RECEIVED', 'PROCESSING')) = (finished_at IS NULL)),
    CHECK (published IS NULL OR state = 'PROCESSED'),
    UNIQUE (tenant, provider, event_id)
);
CREATE INDEX webhook_wake_idx ON milepost.webhook (service, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX webhook_failed_idx ON milepost.webhook (received_at) WHERE state = 'FAILED';
CREATE INDEX webhook_finished_idx ON milepost.webhook (finished_at) WHERE finished_at IS NOT NULL;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.webhook TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.webhook TO milepost_runtime;
    END IF;
END
$$;
-- Operations: the idempotency records of `once` and of the HTTP middleware. Of the request only a hash is kept.

-- wake_at is the end of the lease of a RUNNING one, and since when an UNKNOWN one may be asked about. doubt_at is when the
-- last try ended whose effect nobody knows. expires_at is when the record may be forgotten: there is none while
-- forgetting it could repeat an effect.
CREATE TABLE milepost.operation (
    tenant text NOT NULL DEFAULT '',
    kind text NOT NULL,
    key text NOT NULL,
    id uuid NOT NULL UNIQUE,
    service text NOT NULL,
    fingerprint bytea NOT NULL,
    repeat text NOT NULL CHECK (repeat IN ('safe', 'ask_first', 'never')),
    state text NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED_FINAL', 'UNKNOWN')),
    fence bigint NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 1,
    doubt_at timestamptz,
    result jsonb,
    response_code integer,
    response_headers jsonb,
    response_body bytea,
    resource_type text,
    resource_id text,
    code text,
    message text,
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    updated_at timestamptz NOT NULL DEFAULT milepost.clock(),
    wake_at timestamptz,
    expires_at timestamptz,
    PRIMARY KEY (tenant, kind, key),
    CHECK ((state IN ('RUNNING', 'UNKNOWN')) = (wake_at IS NOT NULL)),
    CHECK (state IN ('RUNNING', 'UNKNOWN') OR expires_at IS NOT NULL),
    CHECK (state <> 'UNKNOWN' OR expires_at IS NULL),
    CHECK (state <> 'UNKNOWN' OR doubt_at IS NOT NULL),
    CHECK (state <> 'FAILED_FINAL' OR code IS NOT NULL)
);
CREATE INDEX operation_wake_idx ON milepost.operation (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX operation_expires_idx ON milepost.operation (expires_at) WHERE expires_at IS NOT NULL;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.operation TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.operation TO milepost_runtime;
    END IF;
END
$$;
-- Participants: what became of every operation that a command asked for.

-- One row per direction of an operation. A DONE or REFUSED row keeps the reply, so that another attempt of the command
-- is answered without the effect. An undo that comes first leaves two rows: its own, and the do's as BLOCKED, which
-- refuses the late do.
CREATE TABLE milepost.barrier (
    consumer text NOT NULL,
    tenant text NOT NULL DEFAULT '',
    run text NOT NULL,
    step text NOT NULL,
    direction text NOT NULL CHECK (direction IN ('do', 'undo')),
    outcome text NOT NULL CHECK (outcome IN ('PENDING', 'DONE', 'REFUSED', 'BLOCKED', 'NOTHING_TO_UNDO')),
    command text NOT NULL,
    fingerprint bytea NOT NULL,
    reply_key text,
    reply_type text,
    reply_payload bytea,
    reply_headers text,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    CHECK ((outcome IN ('PENDING', 'BLOCKED')) = (reply_headers IS NULL)),
    CHECK (outcome <> 'BLOCKED' OR direction = 'do'),
    CHECK (outcome <> 'NOTHING_TO_UNDO' OR direction = 'undo'),
    PRIMARY KEY (consumer, tenant, run, step, direction)
);
CREATE INDEX barrier_at_idx ON milepost.barrier (at);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.barrier TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.barrier TO milepost_runtime;
    END IF;
END
$$;
-- Replays: what each is to read, how far it has come, and what it has found; one that was interrupted goes on from here.

-- begins, ends, live and nexts are offsets by partition: {"0": 120}. live is how far the consumer had come when it began.
CREATE TABLE milepost.replay (
    id uuid PRIMARY KEY,
    consumer text NOT NULL,
    topic text NOT NULL,
    apply boolean NOT NULL,
    begins jsonb NOT NULL,
    ends jsonb NOT NULL,
    live jsonb NOT NULL,
    floor timestamptz NOT NULL,
    nexts jsonb NOT NULL,
    counts jsonb NOT NULL DEFAULT '{}',
    unidentified bigint NOT NULL DEFAULT 0,
    findings jsonb NOT NULL DEFAULT '[]',
    report_bytes bigint NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT milepost.clock(),
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    finished_at timestamptz
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.replay TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.replay TO milepost_runtime;
    END IF;
END
$$;
-- Retention: when each kind of row was last walked, and since when it is remembered.

-- purged_below is committed before the first row is removed, and never goes back, whatever the settings say later.
CREATE TABLE milepost.retention (
    kind text PRIMARY KEY,
    purged_below timestamptz NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock()
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.retention TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.retention TO milepost_runtime;
    END IF;
END
$$;

-- What `milepost runs list` filters by; most runs have succeeded, and those are found by the primary key.
CREATE INDEX run_key_idx ON milepost.run (key);
CREATE INDEX run_saga_idx ON milepost.run (saga, id);
CREATE INDEX run_correlation_idx ON milepost.run (correlation_id);
CREATE INDEX run_created_idx ON milepost.run (created_at);
CREATE INDEX run_state_idx ON milepost.run (state, id) WHERE state <> 'SUCCEEDED';
-- Runs that are cancelled at a safe boundary, that ran out of time, and that succeeded in part.

-- No row has one of the new states yet, so every row that there is fits; the one scan looks at both.
ALTER TABLE milepost.run
    DROP CONSTRAINT run_state_check,
    DROP CONSTRAINT run_check,
    ADD CONSTRAINT run_state_check CHECK (state IN ('PENDING', 'RUNNING', 'WAITING', 'SUCCEEDED',
        'PARTIALLY_SUCCEEDED', 'FAILED', 'COMPENSATING', 'COMPENSATED', 'COMPENSATION_FAILED', 'MANUAL_REQUIRED',
        'CANCEL_REQUESTED', 'CANCELLED', 'EXPIRED')) NOT VALID,
    ADD CONSTRAINT run_check CHECK ((state IN ('SUCCEEDED', 'PARTIALLY_SUCCEEDED', 'FAILED', 'COMPENSATED',
        'CANCELLED', 'EXPIRED')) = (wake_at IS NULL)) NOT VALID;
ALTER TABLE milepost.run
    VALIDATE CONSTRAINT run_state_check,
    VALIDATE CONSTRAINT run_check;
-- Requests: what a person wants done with a run. Whoever asks needs only the database; the orchestrator, which has the
-- definition, carries it out through the state machine and answers in the same transaction.

-- An answered row stays, as the record of who wanted what and why. fence is that of the step as the person saw it:
-- where it has risen, somebody has tried since, and the person decides again.
CREATE TABLE milepost.request (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL,
    run_id uuid NOT NULL,
    what text NOT NULL CHECK (what IN ('retry', 'skip', 'mark_succeeded', 'compensate', 'resume', 'cancel')),
    step text,
    iteration text NOT NULL DEFAULT '',
    fence bigint,
    result jsonb,
    undo boolean,
    did_not_happen boolean NOT NULL DEFAULT false,
    by text NOT NULL CHECK (by <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    state text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'ACCEPTED', 'REFUSED')),
    answer text,
    answered_at timestamptz,
    CHECK ((what IN ('retry', 'skip', 'mark_succeeded')) = (step IS NOT NULL)),
    CHECK ((what = 'cancel') = (undo IS NOT NULL)),
    CHECK (result IS NULL OR what = 'mark_succeeded'),
    CHECK ((state = 'OPEN') = (answered_at IS NULL)),
    CHECK ((answered_at IS NULL) = (answer IS NULL))
);
CREATE INDEX request_open_idx ON milepost.request (service, id) WHERE state = 'OPEN';
CREATE INDEX request_run_idx ON milepost.request (run_id);

-- What stands in front of a person, the oldest first: few of all live rows.
CREATE INDEX step_person_idx ON milepost.step (since) WHERE state IN ('MANUAL_REQUIRED', 'COMPENSATION_FAILED');

-- What was asked cannot be changed afterwards, only answered.
DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.request TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE (state, answer, answered_at) ON milepost.request TO milepost_runtime;
    END IF;
END
$$;
-- Resource locks: who holds what, and who comes next.

-- The name of the lock that a run was started with. Whether it has it is what milepost.resource says.
ALTER TABLE milepost.run ADD COLUMN resource text;

-- A row while somebody holds the resource: from the start of a run, or when it was passed on to it, until it is final.
CREATE TABLE milepost.resource (
    tenant text NOT NULL DEFAULT '',
    name text NOT NULL,
    run_id uuid NOT NULL,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 70);

-- Who waits, in order of arrival.
CREATE TABLE milepost.resource_queue (
    tenant text NOT NULL DEFAULT '',
    name text NOT NULL,
    n bigint GENERATED ALWAYS AS IDENTITY,
    run_id uuid NOT NULL UNIQUE,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (tenant, name, n)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.resource, milepost.resource_queue TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.resource, milepost.resource_queue TO milepost_runtime;
    END IF;
END
$$;
-- What a run may take: an instant at which it has to stop, and how long it has been active.

-- Constant defaults, so no row is rewritten; what older code writes leaves them alone.
ALTER TABLE milepost.run
    ADD COLUMN deadline_at timestamptz,
    ADD COLUMN active_for interval NOT NULL DEFAULT '0',
    ADD COLUMN active_since timestamptz;
-- How far a long step has come, as its last try said with a heartbeat; the next try reads it.

-- No row is rewritten, and older code neither reads nor writes it.
ALTER TABLE milepost.step ADD COLUMN progress jsonb;
-- How soon a run's work is taken: decided at its start, and carried by the topic of its work.

-- A constant default, so no row is rewritten; what older code starts is NORMAL.
ALTER TABLE milepost.run ADD COLUMN priority text NOT NULL DEFAULT 'NORMAL';
-- Not checked against the rows there are, which all have the default: no scan under the lock.
ALTER TABLE milepost.run ADD CONSTRAINT run_priority_check CHECK (priority IN ('HIGH', 'NORMAL', 'LOW')) NOT VALID;
-- Nested shapes: rows of choices and loops, and runs that fail without undo while branches are still under way.

-- No row has one of the new kinds yet, so every row that there is fits.
ALTER TABLE milepost.step
    DROP CONSTRAINT step_kind_check,
    ADD CONSTRAINT step_kind_check CHECK (kind IN ('STEP', 'TX', 'WAIT', 'UNDO', 'CHOICE', 'LOOP', 'TIMER', 'APPROVAL',
        'COMMAND', 'CHILD', 'EACH')) NOT VALID;
ALTER TABLE milepost.step VALIDATE CONSTRAINT step_kind_check;
ALTER TABLE milepost.run ADD COLUMN no_undo boolean NOT NULL DEFAULT false;
-- Artifacts: data that steps have written to the store of MILEPOST_ARTIFACTS, by reference.

-- A row is written with the checkpoint of its step, so there is none without it; an object without a row is left over from
-- a try that did not finish. location counts from the store's root, so that a store can be moved.
CREATE TABLE milepost.artifact (
    tenant text NOT NULL DEFAULT '',
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    name text NOT NULL,
    type text NOT NULL,
    location text NOT NULL,
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    size bigint NOT NULL CHECK (size >= 0),
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (run_id, step, iteration, name)
);
CREATE INDEX artifact_created_idx ON milepost.artifact (created_at);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.artifact TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.artifact TO milepost_runtime;
    END IF;
END
$$;
-- Rate limits: what was let through lately, and until when the next ones have been told to wait.

-- One row for each limit of a service, locked by whoever lets something through. spent: calls by the end of a short span
-- of time, in microseconds since 1970. promised: the last appointment that was given, by priority.
CREATE TABLE milepost.rate_limit (
    service text NOT NULL,
    name text NOT NULL,
    spent jsonb NOT NULL DEFAULT '{}',
    promised jsonb NOT NULL DEFAULT '{}',
    closed_until timestamptz,
    PRIMARY KEY (service, name)
) WITH (fillfactor = 50);

-- Until when a rate limit has asked the step to wait; it is let through first when it comes again. No row is rewritten.
ALTER TABLE milepost.step ADD COLUMN limited_until timestamptz;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.rate_limit TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.rate_limit TO milepost_runtime;
    END IF;
END
$$;
-- Several versions of one saga side by side: what a run is pinned to, who can decide about it, and what is handed over.

-- Constant defaults, so no row is rewritten. A worker of older code registers no pins; its definitions count instead.
ALTER TABLE milepost.run ADD COLUMN input_version integer NOT NULL DEFAULT 1;
ALTER TABLE milepost.worker ADD COLUMN pins text[] NOT NULL DEFAULT '{}';

-- What shapes and policies are fingerprints of, so that a change can be named. Written when a process starts.
CREATE TABLE milepost.definition (
    service text NOT NULL,
    saga text NOT NULL,
    version integer NOT NULL,
    shape text NOT NULL,
    policy text NOT NULL,
    outline jsonb NOT NULL,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (service, saga, version, shape, policy)
);

-- A message that reached a process which cannot decide about its run. Whoever can looks here; parked_at says since when
-- a person has been told that nobody can. n counts the messages.
CREATE TABLE milepost.handover (
    run_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('work', 'compensation', 'timer', 'resume')),
    step text NOT NULL DEFAULT '',
    iteration text NOT NULL DEFAULT '',
    generation bigint NOT NULL DEFAULT 0,
    service text NOT NULL,
    queue text NOT NULL DEFAULT '',
    pin text NOT NULL,
    n bigint NOT NULL DEFAULT 1,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    parked_at timestamptz,
    PRIMARY KEY (run_id, kind, step, iteration)
);
CREATE INDEX handover_pin_idx ON milepost.handover (service, pin);

-- What processes had that were refused because another version was in nobody. They are started again and again, so their
-- definitions count for a while; else two processes that need each other's would never start after both were down.
CREATE TABLE milepost.refused (
    service text NOT NULL,
    pins text[] NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (service, pins)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.definition, milepost.handover, milepost.refused TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT ON milepost.definition TO milepost_runtime;
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.handover, milepost.refused TO milepost_runtime;
    END IF;
END
$$;
-- Runs and steps change several times each and are kept for months. By default a table is vacuumed when a fifth of it is
-- dead, so that what is dead grows with what is kept; a fixed number keeps it flat.
ALTER TABLE milepost.run SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
ALTER TABLE milepost.step SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
-- Fingerprints of runs: what a run rests on, so that an equal one may be used instead of a new one.

-- current: the run stands for its fingerprint. At most one does; one that has ended without success, or is gone, makes room.
CREATE TABLE milepost.fingerprint (
    run_id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    saga text NOT NULL,
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    parts jsonb NOT NULL,
    current boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT milepost.clock()
);
CREATE UNIQUE INDEX fingerprint_current_key ON milepost.fingerprint (tenant, saga, sha256) WHERE current;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.fingerprint TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.fingerprint TO milepost_runtime;
    END IF;
END
$$;
-- Looks at what a run rests on, before it goes on after it stood in front of a person.

-- A row for each request that needed one. The answer counts for the run's version that was looked at.
CREATE TABLE milepost.resume_check (
    request_id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL,
    run_id uuid NOT NULL,
    run_version bigint NOT NULL,
    state text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'PASSED', 'REVIEW_REQUIRED', 'RESUME_BLOCKED')),
    reasons jsonb NOT NULL DEFAULT '[]',
    worker uuid,
    fence bigint NOT NULL DEFAULT 0,
    asked_at timestamptz NOT NULL DEFAULT milepost.clock(),
    started_at timestamptz,
    ended_at timestamptz,
    CHECK ((state = 'OPEN') = (ended_at IS NULL)),
    CHECK (worker IS NULL OR state = 'OPEN')
);
CREATE INDEX resume_check_open_idx ON milepost.resume_check (service, asked_at) WHERE state = 'OPEN';
CREATE INDEX resume_check_run_idx ON milepost.resume_check (run_id);

-- The look whose reasons the person has read and takes upon himself.
ALTER TABLE milepost.request ADD COLUMN reviewed uuid;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.resume_check TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.resume_check TO milepost_runtime;
    END IF;
END
$$;
-- The worklist finds parked runs among all messages that lie there.
CREATE INDEX handover_parked_idx ON milepost.handover (run_id) WHERE parked_at IS NOT NULL;
-- Budgets: what the tries of a step have spent, what persons have granted, and what the present try has said so far.

-- Amounts by name, as texts so that no digit is lost. No row is rewritten, and older code neither reads nor writes them.
ALTER TABLE milepost.step
    ADD COLUMN spent jsonb,
    ADD COLUMN granted jsonb,
    ADD COLUMN spending jsonb;
ALTER TABLE milepost.request ADD COLUMN budget jsonb;
-- Approvals: what persons are asked, which rows wait for it, and what they said.

-- The question of a row and the approvals so far (sagas/questions.py). No row is rewritten; older code neither reads nor
-- writes it.
ALTER TABLE milepost.step ADD COLUMN asked jsonb;

-- Open approvals of flows, for the list of what waits for a person. No row has that kind yet.
CREATE INDEX step_approval_idx ON milepost.step (since) WHERE kind = 'APPROVAL' AND state = 'WAITING';

-- Never changed, and forgotten with its run; the audit has the acts: who said what to a question, of which generation and about which parameters (hash). A person counts once.
CREATE TABLE milepost.approval (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    generation bigint NOT NULL,
    hash text NOT NULL,
    by text NOT NULL CHECK (by <> ''),
    roles text[] NOT NULL DEFAULT '{}',
    decision text NOT NULL CHECK (decision IN ('APPROVED', 'REJECTED')),
    reason text NOT NULL CHECK (reason <> ''),
    at timestamptz NOT NULL DEFAULT milepost.clock()
);
CREATE UNIQUE INDEX approval_once_idx ON milepost.approval (run_id, step, iteration, generation, lower(by), decision);

-- What a person saw when asking, and the roles that the person claims. Older code asks for neither of the two new acts.
ALTER TABLE milepost.request
    ADD COLUMN generation bigint,
    ADD COLUMN hash text,
    ADD COLUMN roles text[] NOT NULL DEFAULT '{}',
    DROP CONSTRAINT request_what_check,
    DROP CONSTRAINT request_check,
    ADD CONSTRAINT request_what_check CHECK (what IN ('retry', 'skip', 'mark_succeeded', 'compensate', 'resume', 'cancel',
        'approve', 'reject')) NOT VALID,
    ADD CONSTRAINT request_check CHECK (
        (what IN ('retry', 'skip', 'mark_succeeded', 'approve', 'reject')) = (step IS NOT NULL)) NOT VALID;
ALTER TABLE milepost.request
    VALIDATE CONSTRAINT request_what_check,
    VALIDATE CONSTRAINT request_check;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.approval TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, DELETE ON milepost.approval TO milepost_runtime;
    END IF;
END
$$;
-- Children: runs that a run has started or found, and waits for.

-- A row says what became of the child of a row of milepost.step: the run, or why there is none. state is how the child
-- ended, which stays when the child itself is gone; joined says that somebody else had started it.
CREATE TABLE milepost.child_run (
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    attempt integer NOT NULL,
    child_id uuid,
    key text NOT NULL DEFAULT '',
    joined boolean NOT NULL DEFAULT false,
    state text,
    code text,
    message text,
    PRIMARY KEY (run_id, step, iteration, attempt)
);
CREATE INDEX child_run_child_idx ON milepost.child_run (child_id) WHERE child_id IS NOT NULL;

-- Somebody waits for the end of the run. Older code does not tell of it, and whoever waits looks by itself then.
ALTER TABLE milepost.run ADD COLUMN watched boolean NOT NULL DEFAULT false;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.child_run TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.child_run TO milepost_runtime;
    END IF;
END
$$;
-- Replies are handed over too, with what they say. What could not be acted on is looked at again ever more seldom: look_at
-- says when, after so many tries. Older code knows neither, and looks twice a second.
ALTER TABLE milepost.handover
    ADD COLUMN payload jsonb,
    ADD COLUMN tries integer NOT NULL DEFAULT 0,
    ADD COLUMN look_at timestamptz NOT NULL DEFAULT '-infinity',
    DROP CONSTRAINT handover_kind_check,
    ADD CONSTRAINT handover_kind_check CHECK (kind IN ('work', 'compensation', 'timer', 'resume', 'reply')) NOT VALID;
ALTER TABLE milepost.handover VALIDATE CONSTRAINT handover_kind_check;
-- Which round of a loop a row tells of; '' outside of loops, and in rows that older code writes. Constant defaults, so no
-- row is rewritten.
ALTER TABLE milepost.history ADD COLUMN iteration text NOT NULL DEFAULT '';
ALTER TABLE milepost.reconciliation ADD COLUMN iteration text NOT NULL DEFAULT '';
-- Fan-out: nodes that start a run for each item of a list.

-- No row has the new kind yet, so every row that there is fits.
ALTER TABLE milepost.step
    DROP CONSTRAINT step_kind_check,
    ADD CONSTRAINT step_kind_check CHECK (kind IN ('STEP', 'TX', 'WAIT', 'UNDO', 'CHOICE', 'LOOP', 'TIMER', 'APPROVAL',
        'COMMAND', 'CHILD', 'EACH')) NOT VALID;
ALTER TABLE milepost.step VALIDATE CONSTRAINT step_kind_check;

-- A list, and how its items stand. Whoever gives items out, or counts what has ended, locks this row, and never that of
-- the run. attempt is that of the step's row in which its items were last given out, next the first that has not been;
-- input_version says which version of their saga's input the items are stored as.
CREATE TABLE milepost.fanout (
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    attempt integer NOT NULL,
    input_version integer NOT NULL,
    total integer NOT NULL,
    next integer NOT NULL DEFAULT 0,
    started integer NOT NULL DEFAULT 0,
    succeeded integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, step, iteration)
) WITH (fillfactor = 50);

-- One item. attempt counts its runs; child_id is the present one, joined says that somebody else had started it.
CREATE TABLE milepost.fanout_item (
    run_id uuid NOT NULL,
    step text NOT NULL,
    iteration text NOT NULL DEFAULT '',
    number integer NOT NULL,
    key text NOT NULL,
    input jsonb NOT NULL,
    state text NOT NULL DEFAULT 'PENDING' CHECK (state IN ('PENDING', 'STARTED', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
    attempt integer NOT NULL DEFAULT 1,
    child_id uuid,
    joined boolean NOT NULL DEFAULT false,
    code text,
    message text,
    PRIMARY KEY (run_id, step, iteration, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX fanout_item_child_idx ON milepost.fanout_item (child_id) WHERE child_id IS NOT NULL;
CREATE INDEX fanout_item_started_idx ON milepost.fanout_item (run_id, step, iteration, number) WHERE state = 'STARTED';
CREATE INDEX fanout_item_failed_idx ON milepost.fanout_item (run_id, step, iteration, number) WHERE state = 'FAILED';

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.fanout, milepost.fanout_item TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.fanout, milepost.fanout_item TO milepost_runtime;
    END IF;
END
$$;
-- The timelines of the database cluster that were met, and since when: a standby that takes over and a restored backup
-- begin a new one, and what the last one had committed may be missing.
CREATE FUNCTION milepost.timeline_now() RETURNS bigint LANGUAGE sql STABLE
RETURN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;

CREATE TABLE milepost.timeline (
    n bigint PRIMARY KEY,
    since timestamptz NOT NULL
);
INSERT INTO milepost.timeline (n, since) VALUES (milepost.timeline_now(), '-infinity');

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.timeline TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT ON milepost.timeline TO milepost_runtime;
    END IF;
END
$$;
-- Who may use the console: sessions of browsers, tokens, and what names may do. Secrets are kept as their SHA-256 alone.

CREATE TABLE milepost.access_token (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('PERSON', 'AGENT')),
    hash bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    grants jsonb NOT NULL,
    by text NOT NULL CHECK (by <> ''),
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    revoked_at timestamptz
);

-- What a name may do that a provider or a proxy vouches for. tenants and sagas: NULL for all.
CREATE TABLE milepost.access_grant (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    role text NOT NULL,
    tenants text[],
    sagas text[],
    by text NOT NULL CHECK (by <> ''),
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    revoked_at timestamptz
);
CREATE INDEX access_grant_name_idx ON milepost.access_grant (name) WHERE revoked_at IS NULL;

CREATE FUNCTION milepost.access_of(name text) RETURNS jsonb LANGUAGE sql STABLE
RETURN coalesce((SELECT jsonb_agg(jsonb_build_object('role', g.role, 'tenants', g.tenants, 'sagas', g.sagas))
                 FROM milepost.access_grant AS g
                 WHERE g.name = access_of.name AND g.revoked_at IS NULL), '[]');

CREATE TABLE milepost.console_session (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('PERSON', 'AGENT')),
    way text NOT NULL CHECK (way IN ('TOKEN', 'OIDC', 'LINK')),
    groups text[] NOT NULL DEFAULT '{}',
    token_id uuid,
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL,
    CHECK ((way = 'TOKEN') = (token_id IS NOT NULL))
);
CREATE INDEX console_session_expires_idx ON milepost.console_session (expires_at);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.access_token, milepost.access_grant, milepost.console_session TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE ON milepost.access_token, milepost.access_grant TO milepost_runtime;
        GRANT SELECT, INSERT, DELETE ON milepost.console_session TO milepost_runtime;
    END IF;
END
$$;
-- A dead letter is edited: it stays as it is, and a new one with an event id of its own stands in its place.
-- turn is the number of the letter whose turn among those of its key it takes; NULL means its own.
ALTER TABLE milepost.dead_letter
    ADD COLUMN turn bigint,
    ADD COLUMN edit_of uuid,
    ADD COLUMN edited_as uuid;
ALTER TABLE milepost.dead_letter
    ADD CONSTRAINT dead_letter_edited_check CHECK (edited_as IS NULL OR status = 'IGNORED');
CREATE INDEX dead_letter_turn_idx ON milepost.dead_letter (scope, topic, held_key, (coalesce(turn, n)))
    WHERE held_key IS NOT NULL AND status IN ('OPEN', 'RETRY_PENDING');

-- What letters of one cause have in common: the first line of the message, without what differs from event to event.
CREATE FUNCTION milepost.letter_cause(message text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN left(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
    left(split_part(message, E'\n', 1), 500),
    '''[^'']*''|"[^"]*"', '<text>', 'g'),
    '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '<id>', 'g'),
    '\m(0x[0-9a-fA-F]+|(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{12,})\M', '<hex>', 'g'),
    '[0-9]+([.,:][0-9]+)*', '<n>', 'g'),
    '\s+', ' ', 'g'), 200);

-- The name of a group of letters with one cause.
CREATE FUNCTION milepost.letter_group(scope text, topic text, code text, message text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN left(md5(concat_ws(chr(31), scope, topic, code, milepost.letter_cause(message))), 12);

-- What was done about a letter.
CREATE INDEX audit_letter_idx ON milepost.audit ((evidence ->> 'letter')) WHERE evidence ->> 'letter' IS NOT NULL;

-- Steps whose outcome nobody knows: few of all live rows, and looked at by people.
CREATE INDEX step_doubt_idx ON milepost.step (since) WHERE state IN ('UNKNOWN', 'RECONCILING');
-- Who acts, and what was not let through: the audit says of every entry what kind of actor it was and what became of it;
-- a request of high consequence waits for a second person; and how severe a workflow is can be read without its code.

-- What older code writes is a person's and was done; the system's own entries of older code are told by their name.
ALTER TABLE milepost.audit
    ADD COLUMN kind text NOT NULL DEFAULT 'PERSON' CHECK (kind IN ('SYSTEM', 'PERSON', 'AGENT')),
    ADD COLUMN outcome text NOT NULL DEFAULT 'DONE' CHECK (outcome IN ('DONE', 'HELD', 'REFUSED'));

-- run_version: it is carried out only while the run has this version. HELD: it would be accepted, and waits for a second
-- person, who is not the first.
ALTER TABLE milepost.request
    ADD COLUMN kind text NOT NULL DEFAULT 'PERSON' CHECK (kind IN ('SYSTEM', 'PERSON', 'AGENT')),
    ADD COLUMN run_version bigint,
    ADD COLUMN proposal uuid,
    ADD COLUMN held_at timestamptz,
    ADD COLUMN confirmed_by text CHECK (confirmed_by <> ''),
    ADD COLUMN confirmed_at timestamptz,
    ADD COLUMN confirm_reason text,
    DROP CONSTRAINT request_state_check,
    DROP CONSTRAINT request_check3,
    ADD CONSTRAINT request_state_check CHECK (state IN ('OPEN', 'HELD', 'ACCEPTED', 'REFUSED')) NOT VALID,
    ADD CONSTRAINT request_answered_check CHECK ((state IN ('OPEN', 'HELD')) = (answered_at IS NULL)) NOT VALID,
    ADD CONSTRAINT request_second_check CHECK (lower(confirmed_by) <> lower(by)) NOT VALID;
ALTER TABLE milepost.request
    VALIDATE CONSTRAINT request_state_check,
    VALIDATE CONSTRAINT request_answered_check,
    VALIDATE CONSTRAINT request_second_check;
CREATE INDEX request_held_idx ON milepost.request (held_at) WHERE state = 'HELD';

-- What processes know of their sagas and people are to see; of several versions the newest counts.
CREATE TABLE milepost.workflow (
    service text NOT NULL,
    saga text NOT NULL,
    version integer NOT NULL,
    severity text NOT NULL CHECK (severity IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')),
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (service, saga)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.workflow TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE ON milepost.workflow TO milepost_runtime;
        GRANT UPDATE (held_at, confirmed_by, confirmed_at, confirm_reason) ON milepost.request TO milepost_runtime;
    END IF;
END
$$;
-- Recovery: what drifted from how it should be, what was decided about it, and what looks for it.

-- A row of recovery says which drift of what (subject), as it was seen (observed), and on which level it was decided; rows
-- that have no run are of letters, holds, the outbox and what services inspect. Rows of probes have drift ''. Constant
-- defaults, so no row is rewritten.
ALTER TABLE milepost.reconciliation
    ALTER COLUMN run_id DROP NOT NULL,
    ADD COLUMN service text NOT NULL DEFAULT '',
    ADD COLUMN drift text NOT NULL DEFAULT '',
    ADD COLUMN subject text NOT NULL DEFAULT '',
    ADD COLUMN observed text NOT NULL DEFAULT '',
    ADD COLUMN level smallint,
    ADD CONSTRAINT reconciliation_drift_check CHECK ((drift = '') = (level IS NULL)) NOT VALID,
    ADD CONSTRAINT reconciliation_run_check CHECK (drift <> '' OR run_id IS NOT NULL) NOT VALID;
ALTER TABLE milepost.reconciliation
    VALIDATE CONSTRAINT reconciliation_drift_check,
    VALIDATE CONSTRAINT reconciliation_run_check;

-- One state of one thing is decided once in one way, whoever looks and however often: this is the last line.
CREATE UNIQUE INDEX reconciliation_once_idx ON milepost.reconciliation (drift, subject, observed, decision) WHERE drift <> '';

-- A pass of a service locks its row, so that one process at a time looks. cursors says where the next page of each list
-- begins, inspected when each inspection is due.
CREATE TABLE milepost.reconciler (
    service text PRIMARY KEY,
    passed_at timestamptz,
    cursors jsonb NOT NULL DEFAULT '{}',
    inspected jsonb NOT NULL DEFAULT '{}'
);

-- What is looked for, the oldest first. Few rows are in one of these states at a time.
CREATE INDEX step_unclaimed_idx ON milepost.step (since) WHERE state IN ('PENDING', 'COMPENSATION_PENDING');
CREATE INDEX step_unknown_idx ON milepost.step (since) WHERE state = 'UNKNOWN';
CREATE INDEX wait_since_idx ON milepost.wait (since) WHERE state = 'OPEN';
CREATE INDEX signal_matched_idx ON milepost.signal (matched_at) WHERE matched_at IS NOT NULL;
CREATE INDEX dead_letter_since_idx ON milepost.dead_letter (first_failed_at) WHERE status = 'OPEN';
CREATE INDEX hold_since_idx ON milepost.hold (since);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.reconciler TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE ON milepost.reconciler TO milepost_runtime;
    END IF;
END
$$;
-- Ages: what shows, without a scan, since when the oldest of everything has been waiting.

-- What fails and is tried again, and what nobody waits for, the oldest first. Every change of a step's state writes its row
-- and its other indexes anew already; here it has an entry only while it waits for its next try.
CREATE INDEX step_retry_idx ON milepost.step (since) WHERE state = 'RETRY_PENDING';
CREATE INDEX signal_received_idx ON milepost.signal (received_at) WHERE matched_at IS NULL;

-- When the process last said that it is alive, several times in a lease: who is gone shows before its lease ends. Older code
-- does not say it, and is judged by its lease alone. No row is rewritten.
ALTER TABLE milepost.worker ADD COLUMN seen_at timestamptz;
-- The audit only grows, and whoever could change it all the same is found out: each entry has a place in a chain of
-- hashes. Who writes an entry does not wait for that: entries are noted here in their own transaction, and given their
-- place by a process that comes after (recovery/sealing.py), in the order in which they were seen to be committed.

CREATE TABLE milepost.audit_unsealed (
    at timestamptz NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (at, id)
);

-- digest is of the entry, hash of the previous hash, n, id, at and digest.
CREATE TABLE milepost.audit_chain (
    n bigint PRIMARY KEY CHECK (n > 0),
    id uuid NOT NULL UNIQUE,
    at timestamptz NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32),
    sealed_at timestamptz NOT NULL DEFAULT milepost.clock()
);

-- Months that were dropped by their age, and the last link that went with them, which the chain goes on from.
CREATE TABLE milepost.audit_retired (
    lower_bound timestamptz PRIMARY KEY,
    upper_bound timestamptz NOT NULL,
    n bigint,
    hash bytea,
    at timestamptz NOT NULL DEFAULT milepost.clock()
);

CREATE FUNCTION milepost.note_audit() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
    BEGIN
        INSERT INTO milepost.audit_unsealed (at, id) VALUES (new.at, new.id);
        RETURN NULL;
    END
    $$;

INSERT INTO milepost.audit_unsealed (at, id) SELECT at, id FROM milepost.audit;
CREATE TRIGGER note_audit AFTER INSERT ON milepost.audit FOR EACH ROW EXECUTE FUNCTION milepost.note_audit();

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.audit_unsealed, milepost.audit_chain, milepost.audit_retired TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, DELETE ON milepost.audit_unsealed TO milepost_runtime;
        GRANT SELECT, INSERT ON milepost.audit_chain TO milepost_runtime;
        GRANT SELECT ON milepost.audit_retired TO milepost_runtime;
    END IF;
END
$$;
-- What the console reads fast at a million runs, and what people keep there.

-- Ended runs of a stretch of time. A summary of each megabyte, which costs a writer next to nothing and no row its place: it is
-- touched only when a run ends, whose state changes too.
CREATE INDEX run_finished_idx ON milepost.run USING brin (finished_at timestamptz_minmax_multi_ops) WITH (pages_per_range = 32);
-- Runs of one tenant, the youngest first; without tenants it is empty.
CREATE INDEX run_tenant_idx ON milepost.run (tenant, id) WHERE tenant <> '';
CREATE INDEX request_answered_idx ON milepost.request (answered_at) WHERE answered_at IS NOT NULL;
CREATE INDEX reconciliation_at_idx ON milepost.reconciliation USING brin (at);

-- What has happened, by five minutes (bucket is their beginning): what is started, settled, run.STATE or act.NAME; seconds is how
-- long it took in all. A row with what tallied says that its bucket was counted.
CREATE TABLE milepost.tally (
    bucket timestamptz NOT NULL,
    tenant text NOT NULL,
    saga text NOT NULL,
    what text NOT NULL,
    amount bigint NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (bucket, tenant, saga, what)
);
CREATE INDEX tally_place_idx ON milepost.tally (bucket) WHERE what = 'tallied';

-- Filters that people have saved, each for himself.
CREATE TABLE milepost.saved_filter (
    owner text NOT NULL,
    page text NOT NULL,
    name text NOT NULL CHECK (name <> '' AND length(name) <= 60),
    query text NOT NULL CHECK (length(query) <= 2000),
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (owner, page, name)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.tally, milepost.saved_filter TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.tally, milepost.saved_filter TO milepost_runtime;
    END IF;
END
$$;
-- Proposals: what an agent or the system would do and may not do by itself, for a person to accept or reject.

-- seen is the version of what it is about when it was proposed: it is accepted only while that is still the one. What is
-- accepted is what stands here, never more.
CREATE TABLE milepost.proposal (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL DEFAULT '',
    saga text,
    run_id uuid,
    step text,
    iteration text NOT NULL DEFAULT '',
    letter bigint,
    subject text NOT NULL CHECK (subject <> ''),
    drift text NOT NULL,
    observed jsonb NOT NULL,
    expected jsonb NOT NULL,
    act text NOT NULL CHECK (act <> ''),
    arguments jsonb NOT NULL DEFAULT '{}',
    risk text NOT NULL CHECK (risk IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')),
    idempotent boolean NOT NULL,
    rollback text NOT NULL,
    needed smallint NOT NULL CHECK (needed > 0),
    seen text NOT NULL,
    by text NOT NULL CHECK (by <> ''),
    kind text NOT NULL CHECK (kind IN ('SYSTEM', 'PERSON', 'AGENT')),
    reason text NOT NULL CHECK (reason <> ''),
    evidence jsonb NOT NULL DEFAULT '{}',
    reconciliation uuid,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'ACCEPTED', 'REJECTED', 'EXPIRED', 'STALE')),
    decided_by text,
    decided_at timestamptz,
    decision_reason text,
    request uuid,
    outcome text,
    CHECK ((state = 'OPEN') = (decided_at IS NULL))
);
-- Proposed twice while it is open is proposed once.
CREATE UNIQUE INDEX proposal_once_idx ON milepost.proposal (subject, act, seen, md5(arguments::text)) WHERE state = 'OPEN';
CREATE INDEX proposal_at_idx ON milepost.proposal (at);
CREATE INDEX proposal_run_idx ON milepost.proposal (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX proposal_reconciliation_idx ON milepost.proposal (reconciliation) WHERE reconciliation IS NOT NULL;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.proposal TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE (state, decided_by, decided_at, decision_reason, request, outcome)
            ON milepost.proposal TO milepost_runtime;
    END IF;
END
$$;
-- Live runs by workflow and state are counted from this index alone: with an index that has only their wake_at, each of them is a
-- page of the table. What it holds changes only when the state does, or the run ends, which no other index lets stay in place
-- either.
CREATE INDEX run_live_idx ON milepost.run (saga, state) INCLUDE (tenant, created_at) WHERE wake_at IS NOT NULL;
-- Acts on many: what a person chose by a filter and confirmed, carried out one by one at a bounded rate.

-- grants is what was granted to whoever asked, when it was asked. next_at bounds the rate over all processes. A bulk of
-- CRITICAL consequence waits, HELD, for a second person.
CREATE TABLE milepost.bulk (
    id uuid PRIMARY KEY,
    act text NOT NULL CHECK (act <> ''),
    chosen jsonb NOT NULL,
    arguments jsonb NOT NULL DEFAULT '{}',
    by text NOT NULL CHECK (by <> ''),
    kind text NOT NULL CHECK (kind IN ('SYSTEM', 'PERSON', 'AGENT')),
    grants jsonb NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    total integer NOT NULL CHECK (total > 0),
    rate real NOT NULL CHECK (rate > 0),
    state text NOT NULL CHECK (state IN ('HELD', 'RUNNING', 'PAUSED', 'STOPPED', 'DONE')),
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    next_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    confirmed_by text CHECK (lower(confirmed_by) <> lower(by)),
    confirm_reason text
);
CREATE INDEX bulk_running_idx ON milepost.bulk (next_at) WHERE state = 'RUNNING';
CREATE INDEX bulk_at_idx ON milepost.bulk (at);

-- fence, generation and hash are of the step or the question as it was chosen. One outcome each, written once.
CREATE TABLE milepost.bulk_item (
    bulk uuid NOT NULL,
    n integer NOT NULL,
    tenant text NOT NULL DEFAULT '',
    saga text,
    run_id uuid,
    step text,
    iteration text NOT NULL DEFAULT '',
    fence bigint,
    generation bigint,
    hash text,
    letter bigint,
    subject text NOT NULL,
    state text NOT NULL DEFAULT 'WAITING' CHECK (state IN ('WAITING', 'ASKED', 'DONE')),
    outcome text,
    code text,
    text text,
    request uuid,
    done_at timestamptz,
    PRIMARY KEY (bulk, n),
    CHECK ((state = 'DONE') = (outcome IS NOT NULL)),
    CHECK ((state = 'DONE') = (done_at IS NOT NULL)),
    CHECK ((run_id IS NULL) <> (letter IS NULL))
);
CREATE INDEX bulk_item_open_idx ON milepost.bulk_item (bulk, n) WHERE state <> 'DONE';

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.bulk, milepost.bulk_item TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE (state, next_at, ended_at, confirmed_by, confirm_reason) ON milepost.bulk
            TO milepost_runtime;
        GRANT SELECT, INSERT, UPDATE (state, outcome, code, text, request, done_at) ON milepost.bulk_item
            TO milepost_runtime;
    END IF;
END
$$;
-- What a letter has in common with others is found out once, when it is stored, and not by everybody who lists them. NULL
-- in letters that were closed before.
ALTER TABLE milepost.dead_letter
    ADD COLUMN cause text,
    ADD COLUMN cause_name text;

CREATE FUNCTION milepost.letter_caused() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
    BEGIN
        NEW.cause := milepost.letter_cause(NEW.message);
        NEW.cause_name := left(md5(concat_ws(chr(31), NEW.scope, NEW.topic, NEW.code, NEW.cause)), 12);
        RETURN NEW;
    END
    $$;
CREATE TRIGGER letter_caused BEFORE INSERT OR UPDATE OF code, message ON milepost.dead_letter
    FOR EACH ROW EXECUTE FUNCTION milepost.letter_caused();

UPDATE milepost.dead_letter SET message = message WHERE status IN ('OPEN', 'RETRY_PENDING');
CREATE INDEX dead_letter_cause_idx ON milepost.dead_letter (cause_name, n) WHERE status IN ('OPEN', 'RETRY_PENDING');
-- The audit is read from its youngest entry on: without an index of time a page of it reads and sorts all there is.

CREATE INDEX audit_at_idx ON milepost.audit (at, id);
-- Which processes read for a consumer, and when each was heard last: one that is killed says nothing any more, and what
-- nobody reads shows nowhere else in the database. A process that ends in order takes its rows with it.
CREATE TABLE milepost.reader (
    process uuid NOT NULL,
    consumer text NOT NULL CHECK (consumer <> ''),
    service text NOT NULL,
    name text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (process, consumer)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.reader TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.reader TO milepost_runtime;
    END IF;
END
$$;
