-- Whom people are at the OpenID provider of the installation: an issuer and its name for a person, never a mail address.
CREATE TABLE openid_identities (
    user_id BIGINT PRIMARY KEY REFERENCES users (id),
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    linked_at_ms BIGINT NOT NULL,
    UNIQUE (issuer, subject)
);

-- Logins on their way through the provider. State, nonce and verifier are computed from the cookie of the browser, and are
-- nowhere here.
CREATE TABLE openid_logins (
    -- SHA-256 of the cookie, which is random.
    token_hash TEXT PRIMARY KEY,
    -- Where the person goes on.
    next TEXT NOT NULL,
    -- NULL until the provider said who it is; then a code of the second factor is waited for.
    user_id BIGINT REFERENCES users (id),
    expires_at_ms BIGINT NOT NULL
);
CREATE INDEX openid_logins_by_user ON openid_logins (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX openid_logins_expiring ON openid_logins (expires_at_ms);
