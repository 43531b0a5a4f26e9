-- What CVMs use: one row for each stretch of time in which a meter ran at one rate. Hourly records, totals and
-- costs are computed from these rows; nothing else is stored of usage.
CREATE TABLE usage_intervals (
    cvm_id BIGINT NOT NULL REFERENCES cvms (id),
    -- 'compute', 'gpu' or 'storage'
    usage_type TEXT NOT NULL,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    app_id TEXT NOT NULL,
    -- What of it: members of a JSON object.
    what TEXT NOT NULL,
    -- Exact decimal text.
    rate_per_hour TEXT NOT NULL,
    from_ms BIGINT NOT NULL,
    -- 9223372036854775807 while the meter runs.
    to_ms BIGINT NOT NULL,
    PRIMARY KEY (cvm_id, usage_type, from_ms)
);

-- A meter never runs twice.
CREATE UNIQUE INDEX usage_intervals_open ON usage_intervals (cvm_id, usage_type) WHERE to_ms = 9223372036854775807;
-- In the order in which statements take them; those outside a window are passed over without reading their rows.
CREATE INDEX usage_intervals_by_app ON usage_intervals (workspace_id, app_id, cvm_id, usage_type, from_ms, to_ms);

-- 0 or 1: the creation has succeeded some time; before, nothing is metered.
ALTER TABLE cvms ADD COLUMN is_established BIGINT NOT NULL DEFAULT 0;
-- Since when nobody can say how the CVM is: its node is silent, or does not know its VM. Nothing is metered then.
ALTER TABLE cvms ADD COLUMN unaccounted_since_ms BIGINT;

UPDATE cvms SET is_established = 1 WHERE deleted_at_ms IS NULL AND (status = 'running' OR EXISTS
    (SELECT 1 FROM revisions r WHERE r.cvm_id = cvms.id AND r.state = 'good'));

-- The price list that the running meters go by: a fingerprint of it. Absent before the first.
CREATE TABLE usage_prices (
    id BIGINT PRIMARY KEY,
    fingerprint TEXT NOT NULL
);
