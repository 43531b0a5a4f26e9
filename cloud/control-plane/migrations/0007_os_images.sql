-- Guest images of the catalogue. Their files are below the control plane's data directory, by hash.
CREATE TABLE os_images (
    os_image_hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    is_dev BIGINT NOT NULL,
    supports_gpu BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    -- offered: nodes get it; retired: only nodes whose CVMs have it.
    state TEXT NOT NULL,
    added_at_ms BIGINT NOT NULL,
    retired_at_ms BIGINT
);

CREATE INDEX cvms_by_image ON cvms (os_image_hash) WHERE deleted_at_ms IS NULL;

-- Counts the reports of a node, so that one that was read before is known again.
ALTER TABLE nodes ADD COLUMN report_number BIGINT NOT NULL DEFAULT 0;
