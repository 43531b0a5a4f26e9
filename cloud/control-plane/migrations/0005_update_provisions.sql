-- Documents that were checked for a CVM and may be applied to it for 14 days.
CREATE TABLE update_provisions (
    cvm_id BIGINT NOT NULL REFERENCES cvms (id),
    compose_hash TEXT NOT NULL,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    -- Exact text that was hashed.
    app_compose TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    -- When it was applied last; the next document for the CVM takes its place.
    applied_at_ms BIGINT,
    PRIMARY KEY (cvm_id, compose_hash)
);

CREATE INDEX update_provisions_by_workspace ON update_provisions (workspace_id);
CREATE INDEX update_provisions_by_expiry ON update_provisions (expires_at_ms);

-- Who wants the CVM deleted at scheduled_delete_at_ms; null for its creator.
ALTER TABLE cvms ADD COLUMN scheduled_delete_by BIGINT REFERENCES users (id);
-- When the scheduled deletion was begun last; one that failed is begun again after a while.
ALTER TABLE cvms ADD COLUMN scheduled_delete_tried_ms BIGINT NOT NULL DEFAULT 0;
