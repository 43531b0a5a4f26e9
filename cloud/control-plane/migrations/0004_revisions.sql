INSERT INTO sequences (name, value) VALUES ('revisions', 0);

-- Configurations that a CVM was given, one row each. A row is written with the operation that brings it.
CREATE TABLE revisions (
    id BIGINT PRIMARY KEY,
    cvm_id BIGINT NOT NULL REFERENCES cvms (id),
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    app_id TEXT NOT NULL,
    -- deploy, update
    operation_type TEXT NOT NULL,
    -- pending: its operation has not applied it; applied; good: its application was up; rolled_back.
    state TEXT NOT NULL,
    compose_hash TEXT NOT NULL,
    app_compose TEXT NOT NULL,
    encrypted_env TEXT,
    env_pubkey TEXT,
    user_config TEXT,
    os_image_hash TEXT NOT NULL,
    os_image_name TEXT NOT NULL,
    instance_type TEXT,
    vcpu BIGINT NOT NULL,
    memory_mb BIGINT NOT NULL,
    disk_gb BIGINT NOT NULL,
    -- JSON array of PCI addresses on the CVM's node.
    gpus TEXT NOT NULL,
    -- The operation; null for CVMs that are older than revisions.
    correlation_id TEXT,
    triggered_by BIGINT NOT NULL REFERENCES users (id),
    created_at_ms BIGINT NOT NULL,
    applied_at_ms BIGINT
);

ALTER TABLE cvms ADD COLUMN gpus TEXT NOT NULL DEFAULT '[]';
-- The revision that the configuration in this row is.
ALTER TABLE cvms ADD COLUMN revision_id BIGINT REFERENCES revisions (id);
-- 0 or 1: a change that does not become healthy in time is taken back.
ALTER TABLE cvms ADD COLUMN rollback_on_failure BIGINT NOT NULL DEFAULT 1;
-- Seconds that a changed CVM gets to become healthy after its boot.
ALTER TABLE cvms ADD COLUMN health_timeout_s BIGINT NOT NULL DEFAULT 300;
ALTER TABLE cvms ADD COLUMN health TEXT;
ALTER TABLE cvms ADD COLUMN health_detail TEXT;
ALTER TABLE cvms ADD COLUMN scheduled_delete_at_ms BIGINT;
-- JSON array of port mappings, as protocol/node-api has them.
ALTER TABLE cvms ADD COLUMN ports TEXT NOT NULL DEFAULT '[]';
-- JSON arrays of addresses that the tenant set instead of the installation's; null keeps those.
ALTER TABLE cvms ADD COLUMN kms_urls TEXT;
ALTER TABLE cvms ADD COLUMN gateway_urls TEXT;
-- Kept with every operation, so that totals do not count rows.
ALTER TABLE cvms ADD COLUMN operation_count BIGINT NOT NULL DEFAULT 0;
-- What the CVM holds of its node: while a change is on its way, the larger of old and new.
ALTER TABLE cvms ADD COLUMN reserved_vcpu BIGINT NOT NULL DEFAULT 0;
ALTER TABLE cvms ADD COLUMN reserved_memory_mb BIGINT NOT NULL DEFAULT 0;
ALTER TABLE cvms ADD COLUMN reserved_disk_gb BIGINT NOT NULL DEFAULT 0;

CREATE INDEX cvms_to_delete ON cvms (scheduled_delete_at_ms) WHERE deleted_at_ms IS NULL;

-- What the living CVMs of a node hold together, kept with every change of them.
ALTER TABLE nodes ADD COLUMN used_cvms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN used_vcpu BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN used_memory_mb BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN used_disk_gb BIGINT NOT NULL DEFAULT 0;
-- 0 or 1: its CVMs are being moved away and nothing new is placed on it.
ALTER TABLE nodes ADD COLUMN draining BIGINT NOT NULL DEFAULT 0;

ALTER TABLE provisions ADD COLUMN gpus TEXT NOT NULL DEFAULT '[]';

-- A GPU belongs to at most one living CVM.
CREATE TABLE gpu_allocations (
    node_id BIGINT NOT NULL REFERENCES nodes (id),
    slot TEXT NOT NULL,
    cvm_id BIGINT NOT NULL REFERENCES cvms (id),
    PRIMARY KEY (node_id, slot)
);

CREATE INDEX gpu_allocations_by_cvm ON gpu_allocations (cvm_id);

-- Revisions that a change brings, and that it goes back to when it fails.
ALTER TABLE operations ADD COLUMN to_revision BIGINT REFERENCES revisions (id);
ALTER TABLE operations ADD COLUMN from_revision BIGINT REFERENCES revisions (id);
-- Status that the CVM has again after a failure that was undone; null where it was not.
ALTER TABLE operations ADD COLUMN recovered_to TEXT;

UPDATE operations SET kind = 'env_update', arguments = '{"offline":true}' WHERE kind = 'update_envs_off';
UPDATE operations SET kind = 'env_update' WHERE kind = 'update_envs';

INSERT INTO revisions (id, cvm_id, workspace_id, app_id, operation_type, state, compose_hash, app_compose,
    encrypted_env, env_pubkey, user_config, os_image_hash, os_image_name, instance_type, vcpu, memory_mb,
    disk_gb, gpus, triggered_by, created_at_ms, applied_at_ms)
SELECT id, id, workspace_id, app_id, 'deploy', CASE WHEN status = 'running' THEN 'good' ELSE 'applied' END,
    compose_hash, app_compose, encrypted_env, env_pubkey, user_config, os_image_hash, os_image_name,
    instance_type, vcpu, memory_mb, disk_gb, '[]', user_id, created_at_ms, created_at_ms
FROM cvms WHERE deleted_at_ms IS NULL;
UPDATE sequences SET value = (SELECT COALESCE(MAX(id), 0) FROM revisions) WHERE name = 'revisions';

UPDATE cvms SET revision_id = id, reserved_vcpu = vcpu, reserved_memory_mb = memory_mb,
    reserved_disk_gb = disk_gb WHERE deleted_at_ms IS NULL;
UPDATE cvms SET operation_count = (SELECT COUNT(*) FROM operations o WHERE o.cvm_id = cvms.id);
UPDATE nodes SET
    used_cvms = (SELECT COUNT(*) FROM cvms c WHERE c.node_id = nodes.id AND c.deleted_at_ms IS NULL),
    used_vcpu = (SELECT CAST(COALESCE(SUM(c.vcpu), 0) AS BIGINT) FROM cvms c
        WHERE c.node_id = nodes.id AND c.deleted_at_ms IS NULL),
    used_memory_mb = (SELECT CAST(COALESCE(SUM(c.memory_mb), 0) AS BIGINT) FROM cvms c
        WHERE c.node_id = nodes.id AND c.deleted_at_ms IS NULL),
    used_disk_gb = (SELECT CAST(COALESCE(SUM(c.disk_gb), 0) AS BIGINT) FROM cvms c
        WHERE c.node_id = nodes.id AND c.deleted_at_ms IS NULL);

CREATE INDEX revisions_by_app ON revisions (app_id, id);
CREATE INDEX revisions_by_cvm ON revisions (cvm_id, id);
