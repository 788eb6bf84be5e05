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
