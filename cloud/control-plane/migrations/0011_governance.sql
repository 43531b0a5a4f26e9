INSERT INTO sequences (name, value) VALUES ('prepared_changes', 0);
INSERT INTO sequences (name, value) VALUES ('approvals', 0);
INSERT INTO sequences (name, value) VALUES ('webhook_events', 0);

-- Changes that wait until the owners of an application have allowed them.
CREATE TABLE prepared_changes (
    id BIGINT PRIMARY KEY,
    -- 'update' of the CVM, or 'replica' of it.
    kind TEXT NOT NULL,
    cvm_id BIGINT NOT NULL REFERENCES cvms (id),
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    app_id TEXT NOT NULL,
    -- What the owners have to allow: a document, and the device that it is to run on; empty where the device
    -- is not known.
    compose_hash TEXT NOT NULL,
    device_id TEXT NOT NULL,
    -- Everything that the commit carries out, JSON; environments in it are sealed.
    request TEXT NOT NULL,
    -- 'pending', 'committed' or 'superseded'.
    state TEXT NOT NULL,
    user_id BIGINT NOT NULL REFERENCES users (id),
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    ended_at_ms BIGINT,
    -- How it was allowed, as the commit says: a transaction, or null for a look at the state alone.
    transaction_hash TEXT,
    -- What came of it: the operation.
    correlation_id TEXT
);

-- A newer one takes the place of the one before.
CREATE UNIQUE INDEX prepared_changes_pending ON prepared_changes (cvm_id, kind) WHERE state = 'pending';
CREATE INDEX prepared_changes_by_app ON prepared_changes (app_id, state);
CREATE INDEX prepared_changes_by_expiry ON prepared_changes (expires_at_ms);

-- Who owns an application without a contract: so many of these people have to sign what it may run. The key
-- management service holds the same and enforces it.
CREATE TABLE app_owners (
    app_id TEXT PRIMARY KEY,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    -- Threshold and public keys, canonical JSON.
    owners TEXT NOT NULL,
    serial BIGINT NOT NULL,
    set_at_ms BIGINT NOT NULL,
    set_by BIGINT NOT NULL REFERENCES users (id)
);

-- Signatures of owners.
CREATE TABLE approvals (
    id BIGINT PRIMARY KEY,
    app_id TEXT NOT NULL,
    -- 'allow_compose_hash', 'revoke_compose_hash' or 'set_owners', and of what.
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    serial BIGINT NOT NULL,
    key_fingerprint TEXT NOT NULL,
    signature TEXT NOT NULL,
    user_id BIGINT NOT NULL REFERENCES users (id),
    created_at_ms BIGINT NOT NULL,
    UNIQUE (app_id, action, subject, serial, key_fingerprint)
);

-- What happened, written in the transaction of what happened, until it is delivered.
CREATE TABLE webhook_events (
    id BIGINT PRIMARY KEY,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    event_type TEXT NOT NULL,
    -- Events of one CVM are delivered in their order.
    cvm_id BIGINT REFERENCES cvms (id),
    -- JSON, the member `data` of the delivery.
    data TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE INDEX webhook_events_by_workspace ON webhook_events (workspace_id, id);

-- 1 for a document whose application is a contract that its owner has still to deploy: `app_id` is then zero.
ALTER TABLE provisions ADD COLUMN awaits_contract BIGINT NOT NULL DEFAULT 0;
-- Device that was chosen, 64 hex digits, where it is known.
ALTER TABLE provisions ADD COLUMN device_id TEXT;
