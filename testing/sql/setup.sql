-- What the test kit adds to a throwaway database: a clock that only moves when told to, and a log of every state.

-- name: install
CREATE TABLE milepost.kit_clock (at timestamptz NOT NULL);
INSERT INTO milepost.kit_clock VALUES (clock_timestamp());

CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT at FROM milepost.kit_clock $$;

-- Rows are written where the clock stands, which may be beyond the partitions that a migration makes.
CREATE FUNCTION milepost.kit_set_clock(instant timestamptz) RETURNS void
    LANGUAGE plpgsql
    AS $$
    DECLARE
        parent text;
        part record;
    BEGIN
        FOREACH parent IN ARRAY ARRAY['history', 'audit'] LOOP
            SELECT * INTO part FROM milepost.partition_of(parent, instant);
            CONTINUE WHEN to_regclass(format('milepost.%I', part.name)) IS NOT NULL;
            EXECUTE format('CREATE TABLE milepost.%I (LIKE milepost.%I INCLUDING ALL)', part.name, parent);
            EXECUTE format('ALTER TABLE milepost.%I ATTACH PARTITION milepost.%I FOR VALUES FROM (%L) TO (%L)',
                           parent, part.name, part.lower_bound, part.upper_bound);
        END LOOP;
        UPDATE milepost.kit_clock SET at = instant;
    END
    $$;

-- Every state that was ever committed, also one that the next change replaced at once.
CREATE TABLE milepost.kit_state (
    run_id uuid NOT NULL,
    step text NOT NULL,
    state text NOT NULL,
    PRIMARY KEY (run_id, step, state)
);

CREATE FUNCTION milepost.kit_note_run() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
    BEGIN
        INSERT INTO milepost.kit_state VALUES (new.id, '', new.state) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END
    $$;

CREATE FUNCTION milepost.kit_note_step() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
    BEGIN
        INSERT INTO milepost.kit_state VALUES (new.run_id, new.name, new.state) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END
    $$;

CREATE TRIGGER kit_note_run AFTER INSERT OR UPDATE ON milepost.run
    FOR EACH ROW EXECUTE FUNCTION milepost.kit_note_run();
CREATE TRIGGER kit_note_step AFTER INSERT OR UPDATE ON milepost.step
    FOR EACH ROW EXECUTE FUNCTION milepost.kit_note_step();
