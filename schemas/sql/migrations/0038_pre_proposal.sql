-- Proposals: what an agent or the system would do and may not do by itself, for a person to accept or reject.

-- seen is the version of what it is about when it was proposed: it is accepted only while that is still the one. What is
-- accepted is what stands here, never more.
CREATE TABLE milepost.proposal (
    id uuid PRIMARY KEY,
    tenant text NOT NULL DEFAULT '',
    service text NOT NULL DEFAULT '',
    saga text,
    run_id uuid,
    step text,
    iteration text NOT NULL DEFAULT '',
    letter bigint,
    subject text NOT NULL CHECK (subject <> ''),
    drift text NOT NULL,
    observed jsonb NOT NULL,
    expected jsonb NOT NULL,
    act text NOT NULL CHECK (act <> ''),
    arguments jsonb NOT NULL DEFAULT '{}',
    risk text NOT NULL CHECK (risk IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')),
    idempotent boolean NOT NULL,
    rollback text NOT NULL,
    needed smallint NOT NULL CHECK (needed > 0),
    seen text NOT NULL,
    by text NOT NULL CHECK (by <> ''),
    kind text NOT NULL CHECK (kind IN ('SYSTEM', 'PERSON', 'AGENT')),
    reason text NOT NULL CHECK (reason <> ''),
    evidence jsonb NOT NULL DEFAULT '{}',
    reconciliation uuid,
    at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'ACCEPTED', 'REJECTED', 'EXPIRED', 'STALE')),
    decided_by text,
    decided_at timestamptz,
    decision_reason text,
    request uuid,
    outcome text,
    CHECK ((state = 'OPEN') = (decided_at IS NULL))
);
-- Proposed twice while it is open is proposed once.
CREATE UNIQUE INDEX proposal_once_idx ON milepost.proposal (subject, act, seen, md5(arguments::text)) WHERE state = 'OPEN';
CREATE INDEX proposal_at_idx ON milepost.proposal (at);
CREATE INDEX proposal_run_idx ON milepost.proposal (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX proposal_reconciliation_idx ON milepost.proposal (reconciliation) WHERE reconciliation IS NOT NULL;

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.proposal TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE (state, decided_by, decided_at, decision_reason, request, outcome)
            ON milepost.proposal TO milepost_runtime;
    END IF;
END
$$;
