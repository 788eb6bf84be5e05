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
