-- Several versions of one saga side by side: what a run is pinned to, who can decide about it, and what is handed over.

-- Constant defaults, so no row is rewritten. A worker of older code registers no pins; its definitions count instead.
ALTER TABLE milepost.run ADD COLUMN input_version integer NOT NULL DEFAULT 1;
ALTER TABLE milepost.worker ADD COLUMN pins text[] NOT NULL DEFAULT '{}';

-- What shapes and policies are fingerprints of, so that a change can be named. Written when a process starts.
CREATE TABLE milepost.definition (
    service text NOT NULL,
    saga text NOT NULL,
    version integer NOT NULL,
    shape text NOT NULL,
    policy text NOT NULL,
    outline jsonb NOT NULL,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (service, saga, version, shape, policy)
);

-- A message that reached a process which cannot decide about its run. Whoever can looks here; parked_at says since when
-- a person has been told that nobody can. n counts the messages.
CREATE TABLE milepost.handover (
    run_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('work', 'compensation', 'timer', 'resume')),
    step text NOT NULL DEFAULT '',
    iteration text NOT NULL DEFAULT '',
    generation bigint NOT NULL DEFAULT 0,
    service text NOT NULL,
    queue text NOT NULL DEFAULT '',
    pin text NOT NULL,
    n bigint NOT NULL DEFAULT 1,
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    parked_at timestamptz,
    PRIMARY KEY (run_id, kind, step, iteration)
);
CREATE INDEX handover_pin_idx ON milepost.handover (service, pin);

-- What processes had that were refused because another version was in nobody. They are started again and again, so their
-- definitions count for a while; else two processes that need each other's would never start after both were down.
CREATE TABLE milepost.refused (
    service text NOT NULL,
    pins text[] NOT NULL,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    PRIMARY KEY (service, pins)
);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.definition, milepost.handover, milepost.refused TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT ON milepost.definition TO milepost_runtime;
        GRANT SELECT, INSERT, UPDATE, DELETE ON milepost.handover, milepost.refused TO milepost_runtime;
    END IF;
END
$$;
