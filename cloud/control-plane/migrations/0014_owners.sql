-- Other owners that somebody wants for an application that has some: the present ones have to approve them. The
-- newest takes the place of the one before.
CREATE TABLE owner_proposals (
    app_id TEXT PRIMARY KEY REFERENCES app_owners (app_id),
    -- Threshold and public keys, canonical JSON.
    owners TEXT NOT NULL,
    serial BIGINT NOT NULL,
    proposed_at_ms BIGINT NOT NULL,
    proposed_by BIGINT NOT NULL REFERENCES users (id)
);

-- Documents that owners took back. No approval up to the serial counts any more, whoever the owners are then.
CREATE TABLE owner_revocations (
    app_id TEXT NOT NULL REFERENCES app_owners (app_id),
    compose_hash TEXT NOT NULL,
    serial BIGINT NOT NULL,
    revoked_at_ms BIGINT NOT NULL,
    PRIMARY KEY (app_id, compose_hash)
);
