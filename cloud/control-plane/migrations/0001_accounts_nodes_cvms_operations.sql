-- Conventions, for SQLite and PostgreSQL alike: flags are BIGINT 0/1, times are BIGINT milliseconds since
-- the Unix epoch (…_ms), documents are TEXT, hex identifiers are lower-case TEXT without 0x.

-- Source of small integer ids on both engines: one row per table.
CREATE TABLE sequences (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO sequences (name, value) VALUES ('users', 0), ('workspaces', 0), ('api_keys', 0), ('nodes', 0), ('cvms', 0);

CREATE TABLE users (
    id BIGINT PRIMARY KEY,
    username TEXT NOT NULL UNIQUE,
    email TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE workspaces (
    id BIGINT PRIMARY KEY,
    slug TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    tier TEXT NOT NULL,
    -- 20 bytes in hex; application ids are contract addresses that this wallet would create.
    wallet TEXT NOT NULL,
    next_app_nonce BIGINT NOT NULL,
    -- Kept with every insert and delete of a CVM, so that totals do not count rows.
    cvm_count BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE memberships (
    user_id BIGINT NOT NULL REFERENCES users (id),
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    role TEXT NOT NULL,
    PRIMARY KEY (user_id, workspace_id)
);

CREATE TABLE api_keys (
    id BIGINT PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id),
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    name TEXT NOT NULL,
    -- SHA-256 of the key: keys are random 256-bit values, so a plain hash suffices.
    key_hash TEXT NOT NULL UNIQUE,
    key_prefix TEXT NOT NULL,
    default_version TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT,
    last_used_at_ms BIGINT,
    revoked_at_ms BIGINT
);

CREATE TABLE nodes (
    id BIGINT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    listed BIGINT NOT NULL,
    maintenance BIGINT NOT NULL,
    -- The last report (protocol/node-api NodeReport without its VMs), or null before the first.
    report TEXT,
    reported_at_ms BIGINT,
    created_at_ms BIGINT NOT NULL,
    deleted_at_ms BIGINT
);

CREATE TABLE join_tokens (
    secret_hash TEXT PRIMARY KEY,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    used_by_node TEXT
);

CREATE TABLE provisions (
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    compose_hash TEXT NOT NULL,
    app_id TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Exact text that was hashed.
    app_compose TEXT NOT NULL,
    node_id BIGINT NOT NULL REFERENCES nodes (id),
    os_image_hash TEXT NOT NULL,
    os_image_name TEXT NOT NULL,
    instance_type TEXT,
    vcpu BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    disk_gb BIGINT NOT NULL,
    listed BIGINT NOT NULL,
    env_keys TEXT NOT NULL,
    user_config TEXT,
    expires_at_ms BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, compose_hash)
);

CREATE INDEX provisions_by_expiry ON provisions (expires_at_ms);

CREATE TABLE cvms (
    id BIGINT PRIMARY KEY,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    user_id BIGINT NOT NULL REFERENCES users (id),
    node_id BIGINT NOT NULL REFERENCES nodes (id),
    vm_uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    -- Lower case of the name while the CVM lives, null afterwards: names are unique among the living.
    live_name TEXT,
    app_id TEXT NOT NULL,
    instance_id TEXT,
    status TEXT NOT NULL,
    compose_hash TEXT NOT NULL,
    app_compose TEXT NOT NULL,
    encrypted_env TEXT,
    user_config TEXT,
    os_image_hash TEXT NOT NULL,
    os_image_name TEXT NOT NULL,
    instance_type TEXT,
    vcpu BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    disk_gb BIGINT NOT NULL,
    listed BIGINT NOT NULL,
    boot_progress TEXT,
    boot_error TEXT,
    shutdown_progress TEXT,
    started_at_ms BIGINT,
    exited_at_ms BIGINT,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    deleted_at_ms BIGINT,
    -- The operation that holds the CVM; at most one.
    operation_id TEXT,
    UNIQUE (workspace_id, live_name)
);

CREATE INDEX cvms_by_workspace ON cvms (workspace_id, id) WHERE deleted_at_ms IS NULL;
CREATE INDEX cvms_by_app ON cvms (app_id) WHERE deleted_at_ms IS NULL;
CREATE INDEX cvms_by_instance ON cvms (instance_id) WHERE deleted_at_ms IS NULL;
CREATE INDEX cvms_by_node ON cvms (node_id) WHERE deleted_at_ms IS NULL;

CREATE TABLE operations (
    correlation_id TEXT PRIMARY KEY,
    cvm_id BIGINT NOT NULL REFERENCES cvms (id),
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    -- JSON of the kind's own arguments.
    arguments TEXT NOT NULL,
    triggered_by BIGINT NOT NULL REFERENCES users (id),
    -- Index into the kind's steps, or into its undo steps once a failure is set.
    step BIGINT NOT NULL,
    -- 0 until a worker first takes up the step.
    step_deadline_ms BIGINT NOT NULL,
    failure TEXT,
    cancel_requested BIGINT NOT NULL,
    -- An operation that was told to end to make room for this one, which starts when that has ended.
    predecessor TEXT REFERENCES operations (correlation_id),
    started_at_ms BIGINT NOT NULL,
    completed_at_ms BIGINT,
    lease_owner TEXT,
    lease_until_ms BIGINT NOT NULL
);

CREATE INDEX operations_by_cvm ON operations (cvm_id, started_at_ms, correlation_id);
CREATE INDEX operations_to_lease ON operations (lease_until_ms) WHERE status = 'in_progress';

CREATE TABLE operation_events (
    correlation_id TEXT NOT NULL REFERENCES operations (correlation_id),
    sequence BIGINT NOT NULL,
    event_type TEXT NOT NULL,
    state TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (correlation_id, sequence)
);
