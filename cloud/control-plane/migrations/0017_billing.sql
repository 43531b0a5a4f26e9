-- Who pays for what is used, and what applications may cost. Amounts are exact decimal texts. What was used is
-- computed from usage_intervals and never written, but for one sum that saves adding up the distant past again.

-- One row per workspace, made when it is first needed; a workspace without one is post-paid and has no credit.
CREATE TABLE billing_accounts (
    workspace_id BIGINT PRIMARY KEY REFERENCES workspaces (id),
    -- 0 or 1: nothing is started without credit.
    prepaid BIGINT NOT NULL,
    -- Sums of the ledger: all of it, and what was granted.
    credited TEXT NOT NULL,
    granted TEXT NOT NULL,
    -- What everything before a full hour cost.
    settled TEXT NOT NULL,
    settled_to_ms BIGINT NOT NULL
);
CREATE INDEX billing_accounts_settled ON billing_accounts (settled_to_ms);

-- The ledger of credits; nothing in it changes.
CREATE TABLE credits (
    id BIGINT PRIMARY KEY,
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    idempotency_key TEXT NOT NULL,
    -- 'payment', 'grant' or 'correction'
    kind TEXT NOT NULL,
    amount TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_by BIGINT NOT NULL REFERENCES users (id),
    created_at_ms BIGINT NOT NULL,
    UNIQUE (workspace_id, idempotency_key)
);
CREATE INDEX credits_by_workspace ON credits (workspace_id, id);
INSERT INTO sequences (name, value) VALUES ('credits', 0);

-- What an application may cost in a month. Months are numbered: twelve times the year, and the month from 0 on.
CREATE TABLE app_budgets (
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    app_id TEXT NOT NULL,
    monthly_limit TEXT NOT NULL,
    alert_percent BIGINT NOT NULL,
    -- 0 or 1: the application's CVMs are stopped when it is used up.
    stop BIGINT NOT NULL,
    set_by BIGINT NOT NULL REFERENCES users (id),
    updated_at_ms BIGINT NOT NULL,
    -- The last months in which the alert and the excess were told of; 0 before the first.
    alerted_month BIGINT NOT NULL,
    exceeded_month BIGINT NOT NULL,
    -- When it is looked at next. Whoever looks moves it, so that of several control planes one does.
    due_at_ms BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, app_id)
);
CREATE INDEX app_budgets_due ON app_budgets (due_at_ms);

-- What still counts after a moment, without passing over what has ended long ago.
CREATE INDEX usage_intervals_by_end ON usage_intervals (workspace_id, to_ms);
