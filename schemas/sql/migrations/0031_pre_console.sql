-- Who may use the console: sessions of browsers, tokens, and what names may do. Secrets are kept as their SHA-256 alone.

CREATE TABLE milepost.access_token (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('PERSON', 'AGENT')),
    hash bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    grants jsonb NOT NULL,
    by text NOT NULL CHECK (by <> ''),
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    revoked_at timestamptz
);

-- What a name may do that a provider or a proxy vouches for. tenants and sagas: NULL for all.
CREATE TABLE milepost.access_grant (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (name <> ''),
    role text NOT NULL,
    tenants text[],
    sagas text[],
    by text NOT NULL CHECK (by <> ''),
    since timestamptz NOT NULL DEFAULT milepost.clock(),
    revoked_at timestamptz
);
CREATE INDEX access_grant_name_idx ON milepost.access_grant (name) WHERE revoked_at IS NULL;

CREATE FUNCTION milepost.access_of(name text) RETURNS jsonb LANGUAGE sql STABLE
RETURN coalesce((SELECT jsonb_agg(jsonb_build_object('role', g.role, 'tenants', g.tenants, 'sagas', g.sagas))
                 FROM milepost.access_grant AS g
                 WHERE g.name = access_of.name AND g.revoked_at IS NULL), '[]');

CREATE TABLE milepost.console_session (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    name text NOT NULL CHECK (name <> ''),
    kind text NOT NULL CHECK (kind IN ('PERSON', 'AGENT')),
    way text NOT NULL CHECK (way IN ('TOKEN', 'OIDC', 'LINK')),
    groups text[] NOT NULL DEFAULT '{}',
    token_id uuid,
    created_at timestamptz NOT NULL DEFAULT milepost.clock(),
    expires_at timestamptz NOT NULL,
    CHECK ((way = 'TOKEN') = (token_id IS NOT NULL))
);
CREATE INDEX console_session_expires_idx ON milepost.console_session (expires_at);

DO $$
BEGIN
    IF to_regrole('milepost_owner') IS NOT NULL THEN
        GRANT ALL ON milepost.access_token, milepost.access_grant, milepost.console_session TO milepost_owner;
    END IF;
    IF to_regrole('milepost_runtime') IS NOT NULL THEN
        GRANT SELECT, INSERT, UPDATE ON milepost.access_token, milepost.access_grant TO milepost_runtime;
        GRANT SELECT, INSERT, DELETE ON milepost.console_session TO milepost_runtime;
    END IF;
END
$$;
