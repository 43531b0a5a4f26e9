INSERT INTO sequences (name, value) VALUES ('rollouts', 0);

-- A change that is brought to several CVMs one after the other, or a node that is being emptied.
CREATE TABLE rollouts (
    id BIGINT PRIMARY KEY,
    -- update, drain
    kind TEXT NOT NULL,
    -- Of an update: the application and its workspace.
    workspace_id BIGINT REFERENCES workspaces (id),
    app_id TEXT,
    -- Of a drain: the node that is being emptied.
    node_id BIGINT REFERENCES nodes (id),
    -- docs/rollouts.md has the table.
    state TEXT NOT NULL,
    -- Why it does not go on, or went back; for people.
    reason TEXT,
    -- roll_back, pause
    on_failure TEXT NOT NULL,
    -- Most members that are being changed at the same time.
    max_unavailable BIGINT NOT NULL,
    -- JSON: how guests are shut down.
    arguments TEXT NOT NULL,
    triggered_by BIGINT NOT NULL REFERENCES users (id),
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    -- Null while it is alive.
    completed_at_ms BIGINT,
    -- When it is looked at again.
    due_ms BIGINT NOT NULL,
    -- Since when it waits for members that were changed to do well.
    waiting_since_ms BIGINT
);

CREATE UNIQUE INDEX rollouts_live_by_app ON rollouts (app_id) WHERE completed_at_ms IS NULL AND kind = 'update';
CREATE UNIQUE INDEX rollouts_live_by_node ON rollouts (node_id) WHERE completed_at_ms IS NULL AND kind = 'drain';
CREATE INDEX rollouts_due ON rollouts (due_ms) WHERE completed_at_ms IS NULL;
CREATE INDEX rollouts_by_app ON rollouts (app_id, id);
CREATE INDEX rollouts_by_node ON rollouts (node_id, id);

-- The CVMs of a rollout in their order.
CREATE TABLE rollout_members (
    rollout_id BIGINT NOT NULL REFERENCES rollouts (id),
    position BIGINT NOT NULL,
    cvm_id BIGINT NOT NULL REFERENCES cvms (id),
    state TEXT NOT NULL,
    -- JSON of what it gets; forgotten when the rollout ends.
    configuration TEXT,
    -- The revision that it had, and goes back to.
    from_revision BIGINT REFERENCES revisions (id),
    -- The latest operation of the rollout on it.
    correlation_id TEXT,
    -- Of a drain: the CVM that takes its place.
    replacement_id BIGINT REFERENCES cvms (id),
    -- Its name, chosen before it is made, so that it is made once.
    replacement_name TEXT,
    error TEXT,
    updated_at_ms BIGINT NOT NULL,
    PRIMARY KEY (rollout_id, position)
);

CREATE INDEX rollout_members_by_cvm ON rollout_members (cvm_id);
