-- Collateral is the same for many quotes and is kept once, by the SHA-256 of its document.
CREATE TABLE collaterals (
    digest TEXT PRIMARY KEY,
    document TEXT NOT NULL
);

-- Quotes that somebody had verified. Bounded: housekeeping removes the oldest.
CREATE TABLE quotes (
    -- SHA-256 of the quote's bytes.
    checksum TEXT PRIMARY KEY,
    -- Base64.
    quote TEXT NOT NULL,
    uploaded_at_ms BIGINT NOT NULL,
    verified_at_ms BIGINT NOT NULL,
    verified BIGINT NOT NULL,
    -- JSON: trust root, TCB status, advisories, platform, or the reasons of a refusal.
    verdict TEXT NOT NULL,
    -- What it was verified with, if there was any.
    collateral_digest TEXT REFERENCES collaterals (digest)
);

CREATE INDEX quotes_by_upload ON quotes (uploaded_at_ms, checksum);
CREATE INDEX quotes_by_collateral ON quotes (collateral_digest);

-- Platforms that verified quotes of CVMs came from, by node. A node's platform changes with its firmware
-- and boards; former ones stay.
CREATE TABLE node_devices (
    node_id BIGINT NOT NULL REFERENCES nodes (id),
    -- SHA-256 of the PPID.
    device_id TEXT NOT NULL,
    ppid TEXT NOT NULL,
    fmspc TEXT NOT NULL,
    -- Name of the trust root that the quote was verified against.
    trust_root TEXT NOT NULL,
    tcb_status TEXT NOT NULL,
    first_verified_at_ms BIGINT NOT NULL,
    last_verified_at_ms BIGINT NOT NULL,
    PRIMARY KEY (node_id, device_id)
);

-- The list of registered platforms that was accepted last, so that an older one is refused after a restart.
CREATE TABLE platform_lists (
    -- Identity of the key that signs the list.
    signer TEXT PRIMARY KEY,
    serial BIGINT NOT NULL,
    accepted_at_ms BIGINT NOT NULL
);
