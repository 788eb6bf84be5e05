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
