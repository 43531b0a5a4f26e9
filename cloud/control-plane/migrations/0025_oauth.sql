-- What applications may do in the name of people (OAuth 2.0) is an API key of that person, which the application renews.
ALTER TABLE api_keys ADD COLUMN oauth_client TEXT;
-- The most that the application may ask for when it renews the key: what the person allowed.
ALTER TABLE api_keys ADD COLUMN oauth_scope TEXT;
-- When a code of the second factor was presented with it.
ALTER TABLE api_keys ADD COLUMN stepped_up_at_ms BIGINT;

-- Codes on their way from the consent of a person to the application (RFC 6749 section 4.1.2).
CREATE TABLE oauth_codes (
    -- SHA-256 of the code, which is random.
    code_hash TEXT PRIMARY KEY,
    client_id TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    -- SHA-256 of the verifier (RFC 7636), base64url.
    challenge TEXT NOT NULL,
    user_id BIGINT NOT NULL REFERENCES users (id),
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    scope TEXT NOT NULL,
    -- How often it was presented: the second time ends what came of the first.
    uses BIGINT NOT NULL,
    api_key_id BIGINT REFERENCES api_keys (id),
    expires_at_ms BIGINT NOT NULL
);
CREATE INDEX oauth_codes_expiring ON oauth_codes (expires_at_ms);

-- What a key is renewed with. Those that were used are kept until they expire: one that is used again was stolen.
CREATE TABLE oauth_refresh_tokens (
    -- SHA-256 of the token, which is random.
    token_hash TEXT PRIMARY KEY,
    api_key_id BIGINT NOT NULL REFERENCES api_keys (id),
    uses BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL
);
CREATE INDEX oauth_refresh_tokens_by_key ON oauth_refresh_tokens (api_key_id);
CREATE INDEX oauth_refresh_tokens_expiring ON oauth_refresh_tokens (expires_at_ms);
CREATE INDEX api_keys_of_clients ON api_keys (user_id) WHERE oauth_client IS NOT NULL;

-- What a device asks to be allowed; whoever lets it in says what it gets.
ALTER TABLE device_logins ADD COLUMN scope TEXT NOT NULL DEFAULT 'deploy';
