-- Devices that wait for somebody to let them in (RFC 8628). Forgotten when they expire.
CREATE TABLE device_logins (
    -- Hash of the code that the device has; the code itself is nowhere here.
    device_code_hash TEXT PRIMARY KEY,
    -- What a person types.
    user_code TEXT NOT NULL UNIQUE,
    -- What the device calls itself.
    client TEXT NOT NULL,
    -- Hash and beginning of the API key that the device makes of its code: it works when the login is approved.
    key_hash TEXT NOT NULL,
    key_prefix TEXT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    -- NULL until somebody decides; then 'approved' or 'denied'.
    decision TEXT
);
CREATE INDEX device_logins_expiring ON device_logins (expires_at_ms);
