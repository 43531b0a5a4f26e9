-- What a key may do: read, deploy or admin, each including the ones before. Keys from before scopes may do everything
-- that their user may.
ALTER TABLE api_keys ADD COLUMN scope TEXT NOT NULL DEFAULT 'admin';

-- Chains of records of what was changed, and by whom: one for each workspace, and number 0 for the installation. Rows
-- of audit_records are added and never changed or removed.
CREATE TABLE audit_heads (
    chain BIGINT PRIMARY KEY,
    -- The last record of the chain; 0 and zeros before the first.
    sequence BIGINT NOT NULL,
    hash TEXT NOT NULL,
    at_ms BIGINT NOT NULL
);

CREATE TABLE audit_records (
    chain BIGINT NOT NULL,
    -- From 1, without gaps.
    sequence BIGINT NOT NULL,
    -- Never before the time of the record before.
    at_ms BIGINT NOT NULL,
    -- key, commit_token or system
    actor_kind TEXT NOT NULL,
    -- Login name of the key's user, or which part of the system.
    actor_name TEXT,
    user_id BIGINT,
    api_key_id BIGINT,
    key_prefix TEXT,
    request_id TEXT,
    -- operation_id of the interface.
    operation TEXT NOT NULL,
    target_kind TEXT NOT NULL,
    -- As the interface names it.
    target_id TEXT NOT NULL,
    -- SHA-256 of the canonical JSON of the target's configuration; null where there was, or is, nothing.
    before_hash TEXT,
    after_hash TEXT,
    -- SHA-256 of the canonical JSON of the record before, and of this one, which the former is a part of.
    previous_hash TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (chain, sequence)
);

CREATE INDEX audit_records_by_time ON audit_records (chain, at_ms, sequence);
CREATE INDEX audit_records_by_operation ON audit_records (chain, operation, sequence);
CREATE INDEX audit_records_by_target ON audit_records (chain, target_id, sequence);
CREATE INDEX audit_records_by_actor ON audit_records (chain, actor_name, sequence);
CREATE INDEX audit_records_by_key ON audit_records (chain, api_key_id, sequence) WHERE api_key_id IS NOT NULL;
