INSERT INTO sequences (name, value) VALUES ('kmses', 0);

-- Key management services by the name that the configuration gives them. A service that is configured no
-- more stays, because CVMs refer to it.
CREATE TABLE kmses (
    id BIGINT PRIMARY KEY,
    slug TEXT NOT NULL UNIQUE,
    created_at_ms BIGINT NOT NULL
);

-- Where a CVM's keys come from; null for an application that wants none.
ALTER TABLE provisions ADD COLUMN kms_id BIGINT REFERENCES kmses (id);
ALTER TABLE cvms ADD COLUMN kms_id BIGINT REFERENCES kmses (id);

-- Public key, 64 hex digits, that environments of the application were sealed to last.
ALTER TABLE provisions ADD COLUMN env_pubkey TEXT;
ALTER TABLE cvms ADD COLUMN env_pubkey TEXT;

-- Sealed environment in hex, for creations that bring none of their own.
ALTER TABLE provisions ADD COLUMN encrypted_env TEXT;
