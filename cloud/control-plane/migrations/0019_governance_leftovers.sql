-- Revocations of owners that a key management service has not heard of yet. Each is told until it is.
CREATE TABLE untold_revocations (
    app_id TEXT NOT NULL,
    compose_hash TEXT NOT NULL,
    kms_id BIGINT NOT NULL REFERENCES kmses (id),
    -- Of the revocation in force; a later one takes its place.
    serial BIGINT NOT NULL,
    since_ms BIGINT NOT NULL,
    -- How often it was tried, when it is tried next, and why the last try failed.
    attempts BIGINT NOT NULL,
    next_attempt_at_ms BIGINT NOT NULL,
    error TEXT,
    PRIMARY KEY (app_id, compose_hash, kms_id)
);

CREATE INDEX untold_revocations_due ON untold_revocations (next_attempt_at_ms);

-- The workspace in which an application was first made. An application under a contract has an id that anybody can
-- name, so that the id alone says nothing about whose it is.
CREATE TABLE app_workspaces (
    app_id TEXT PRIMARY KEY,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    bound_at_ms BIGINT NOT NULL
);

INSERT INTO app_workspaces (app_id, workspace_id, bound_at_ms)
SELECT c.app_id, c.workspace_id, c.created_at_ms FROM cvms c
JOIN (SELECT MIN(id) AS id FROM cvms GROUP BY app_id) f ON f.id = c.id;
