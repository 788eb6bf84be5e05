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
