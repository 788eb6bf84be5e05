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
