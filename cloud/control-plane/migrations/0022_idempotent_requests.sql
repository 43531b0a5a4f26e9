-- Requests that were made under an idempotency key: each has its effect once. Forgotten after a day.
CREATE TABLE idempotent_requests (
    api_key_id BIGINT NOT NULL REFERENCES api_keys (id),
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    -- Hash of what the client calls the request.
    key_hash TEXT NOT NULL,
    -- Hash of what was asked for.
    fingerprint TEXT NOT NULL,
    -- Which run of it counts: one that was taken for dead commits nothing.
    run BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    -- Until when its run is taken for alive.
    runs_until_ms BIGINT NOT NULL,
    -- 1 from the commit of its effect on.
    is_carried_out BIGINT NOT NULL,
    -- The answer, sealed under the API key, which is not in this database. NULL until there is one.
    status BIGINT,
    content_type TEXT,
    sealed_answer TEXT,
    PRIMARY KEY (api_key_id, key_hash)
);
CREATE INDEX idempotent_requests_created ON idempotent_requests (created_at_ms);
CREATE INDEX idempotent_requests_of_workspaces ON idempotent_requests (workspace_id, created_at_ms);
