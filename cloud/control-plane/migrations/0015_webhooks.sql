INSERT INTO sequences (name, value) VALUES ('webhooks', 0);
-- Ids of deliveries lead with the time: the sequence holds the last one.
INSERT INTO sequences (name, value) VALUES ('webhook_deliveries', 0);

-- What happened: its identity on the wire, whose order it keeps, and where it came from.
ALTER TABLE webhook_events ADD COLUMN event_id TEXT NOT NULL DEFAULT '';
-- Events with the same key are told to a webhook one after the other: of a CVM, or of an application.
ALTER TABLE webhook_events ADD COLUMN ordering TEXT NOT NULL DEFAULT '';
-- The operation that ended with it: each one is told once.
ALTER TABLE webhook_events ADD COLUMN correlation_id TEXT;
-- The only webhook that is told, of an event that nothing happened for: a test.
ALTER TABLE webhook_events ADD COLUMN only_for BIGINT;

-- Events from before this migration were delivered nowhere; their numbers make ids of the right length.
UPDATE webhook_events SET
    event_id = 'evt_' || SUBSTR('0000000000000000', 1, 16 - LENGTH(CAST(id AS TEXT))) || CAST(id AS TEXT),
    ordering = CASE WHEN cvm_id IS NULL THEN 'event:' || CAST(id AS TEXT) ELSE 'cvm:' || CAST(cvm_id AS TEXT) END;

CREATE INDEX webhook_events_by_time ON webhook_events (created_at_ms);
CREATE UNIQUE INDEX webhook_events_by_operation ON webhook_events (correlation_id) WHERE correlation_id IS NOT NULL;

CREATE TABLE webhooks (
    id BIGINT PRIMARY KEY,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    url TEXT NOT NULL,
    name TEXT,
    -- Kinds of events that it is told of, JSON array of names.
    events TEXT NOT NULL,
    enabled BIGINT NOT NULL,
    -- Why the service disabled it; null where somebody did, or nobody.
    disabled_reason TEXT,
    -- What its requests are signed with, sealed; empty once it is deleted.
    sealed_secret TEXT NOT NULL,
    -- The secret before it, which signs too until this time.
    previous_sealed_secret TEXT,
    previous_until_ms BIGINT,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    -- Its row stays until its deliveries are forgotten.
    deleted_at_ms BIGINT
);

CREATE INDEX webhooks_by_workspace ON webhooks (workspace_id, id) WHERE deleted_at_ms IS NULL;

-- One event on its way to one webhook.
CREATE TABLE webhook_deliveries (
    id BIGINT PRIMARY KEY,
    webhook_id BIGINT NOT NULL REFERENCES webhooks (id),
    -- What is told. Events are forgotten before their deliveries.
    event BIGINT NOT NULL,
    -- Identity that the receiver sees; another one than that of the event where somebody had it sent again.
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    -- Of what was sent again: the event id of the first time. Empty otherwise.
    original_event_id TEXT NOT NULL,
    -- Deliveries to one webhook with the same key are made one after the other, by id.
    ordering TEXT NOT NULL,
    -- 'pending', 'success' or 'failed'.
    status TEXT NOT NULL,
    -- Attempts of the schedule that were begun; those that were interrupted do not count.
    attempts BIGINT NOT NULL,
    -- Attempts at all: the number of the last one.
    tries BIGINT NOT NULL,
    -- When it is to be tried. Null while it is being tried, while an earlier one comes first, and at the end.
    due_at_ms BIGINT,
    -- While it is being tried: when whoever does is taken for dead.
    lease_until_ms BIGINT,
    request_url TEXT NOT NULL,
    -- Of the last attempt that ended; 0 without an answer.
    response_status BIGINT NOT NULL,
    error_message TEXT NOT NULL,
    duration_ms BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    delivered_at_ms BIGINT
);

CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, ordering, id) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, due_at_ms, id) WHERE due_at_ms IS NOT NULL;
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (lease_until_ms) WHERE lease_until_ms IS NOT NULL;

-- Every request that was begun, written before it is made.
CREATE TABLE webhook_attempts (
    delivery_id BIGINT NOT NULL REFERENCES webhook_deliveries (id),
    number BIGINT NOT NULL,
    began_at_ms BIGINT NOT NULL,
    ended_at_ms BIGINT,
    -- Null while it is under way; then 'success', 'failed' or 'interrupted'.
    outcome TEXT,
    response_status BIGINT NOT NULL,
    error_message TEXT NOT NULL,
    duration_ms BIGINT NOT NULL,
    PRIMARY KEY (delivery_id, number)
);
