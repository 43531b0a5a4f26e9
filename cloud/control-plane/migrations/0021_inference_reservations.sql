-- What is set aside of a workspace's credit for inference that is under way, until it is told how that ended, or it
-- lapses. Amounts are exact decimal texts.
CREATE TABLE inference_reservations (
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    -- The gateway's id of the request.
    request_id TEXT NOT NULL,
    amount TEXT NOT NULL,
    lapses_at_ms BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, request_id)
);
CREATE INDEX inference_reservations_lapse ON inference_reservations (lapses_at_ms);
