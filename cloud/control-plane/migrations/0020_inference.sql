-- What gateways tell of inference. Amounts are exact decimal texts.

-- All that inference has cost a workspace: the sum of the costs of all its rows that were ever recorded.
ALTER TABLE billing_accounts ADD COLUMN inference TEXT NOT NULL DEFAULT '0';

-- Attempts to have a request answered, each recorded once however often it is told. Forgotten after some months.
CREATE TABLE inference_attempts (
    request_id TEXT NOT NULL,
    attempt_index BIGINT NOT NULL,
    status BIGINT NOT NULL,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    api_key_id BIGINT NOT NULL REFERENCES api_keys (id),
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    -- The gateway's id of the route that was tried.
    route TEXT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cost TEXT NOT NULL,
    recorded_at_ms BIGINT NOT NULL,
    PRIMARY KEY (request_id, attempt_index, status)
);
CREATE INDEX inference_attempts_recorded ON inference_attempts (recorded_at_ms);

-- Their sums by the hour in which they were recorded; kept for ever.
CREATE TABLE inference_hours (
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    hour_ms BIGINT NOT NULL,
    model TEXT NOT NULL,
    api_key_id BIGINT NOT NULL REFERENCES api_keys (id),
    -- Attempts that were answered, and others.
    answered BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cost TEXT NOT NULL,
    PRIMARY KEY (workspace_id, hour_ms, model, api_key_id)
);
