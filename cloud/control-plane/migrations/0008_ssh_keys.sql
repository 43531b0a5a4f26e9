INSERT INTO sequences (name, value) VALUES ('user_ssh_keys', 0);

-- Keys that users log in to CVMs with. A row outlives its key.
CREATE TABLE user_ssh_keys (
    id BIGINT PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id),
    name TEXT NOT NULL,
    -- One line in OpenSSH's form.
    public_key TEXT NOT NULL,
    -- SHA256:…
    fingerprint TEXT NOT NULL,
    -- The same while the key lives, null afterwards: a user has a key once.
    live_fingerprint TEXT,
    key_type TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    deleted_at_ms BIGINT,
    UNIQUE (user_id, live_fingerprint)
);

-- The applications of a workspace, newest CVM first.
CREATE INDEX cvms_by_workspace_and_app ON cvms (workspace_id, app_id, id) WHERE deleted_at_ms IS NULL;
