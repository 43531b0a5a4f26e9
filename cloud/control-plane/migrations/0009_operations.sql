-- When the key management service was told not to give the application's keys to the document any more; null
-- while it may.
ALTER TABLE revisions ADD COLUMN keys_retired_at_ms BIGINT;

CREATE INDEX revisions_with_keys ON revisions (app_id, compose_hash) WHERE keys_retired_at_ms IS NULL;

-- Pages of the operations of one kind.
CREATE INDEX operations_by_kind ON operations (cvm_id, kind, started_at_ms, correlation_id);
