-- Commit tokens can be found and not read: only their hashes are stored, and each is made again from its
-- record's number when somebody is to be told.
ALTER TABLE prepared_changes ADD COLUMN token_hash TEXT NOT NULL DEFAULT '';

CREATE UNIQUE INDEX prepared_changes_by_token ON prepared_changes (token_hash) WHERE token_hash <> '';
CREATE INDEX prepared_changes_by_workspace ON prepared_changes (workspace_id, state);
