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
