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
