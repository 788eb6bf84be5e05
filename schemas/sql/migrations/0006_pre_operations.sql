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
