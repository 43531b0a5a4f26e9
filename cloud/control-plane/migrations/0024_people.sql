-- Passwords of people (Argon2id, PHC strings). A user without a row has none.
CREATE TABLE passwords (
    user_id BIGINT PRIMARY KEY REFERENCES users (id),
    phc TEXT NOT NULL,
    changed_at_ms BIGINT NOT NULL
);

-- Links by which people set a password themselves: the newest of each user, used once.
CREATE TABLE password_links (
    user_id BIGINT PRIMARY KEY REFERENCES users (id),
    -- SHA-256 of the token in the link, which is random.
    token_hash TEXT NOT NULL UNIQUE,
    expires_at_ms BIGINT NOT NULL
);
CREATE INDEX password_links_expiring ON password_links (expires_at_ms);

-- Browsers that people logged in with.
CREATE TABLE sessions (
    -- SHA-256 of the cookie, which is random.
    token_hash TEXT PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id),
    created_at_ms BIGINT NOT NULL,
    -- Last use, to the minute.
    used_at_ms BIGINT NOT NULL
);
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_use ON sessions (used_at_ms);
CREATE INDEX sessions_by_age ON sessions (created_at_ms);

-- Secrets of one-time codes (RFC 6238).
CREATE TABLE second_factors (
    user_id BIGINT PRIMARY KEY REFERENCES users (id),
    sealed_secret TEXT NOT NULL,
    -- NULL until a code has shown that the secret has arrived.
    confirmed_at_ms BIGINT,
    -- Codes of this step and of earlier ones are not accepted any more.
    last_step BIGINT NOT NULL
);

-- Codes for whoever lost the device that makes the others; each works once. Keyed hashes.
CREATE TABLE backup_codes (
    user_id BIGINT NOT NULL REFERENCES users (id),
    code_hash TEXT NOT NULL,
    PRIMARY KEY (user_id, code_hash)
);

-- How often something was guessed at since the last right guess.
CREATE TABLE guesses (
    -- SHA-256 of what is guessed at, whether or not it exists.
    target TEXT PRIMARY KEY,
    failures BIGINT NOT NULL,
    not_before_ms BIGINT NOT NULL,
    at_ms BIGINT NOT NULL
);
CREATE INDEX guesses_by_time ON guesses (at_ms);
