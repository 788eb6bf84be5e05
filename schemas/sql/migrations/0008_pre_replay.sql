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
