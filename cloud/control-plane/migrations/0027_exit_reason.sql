-- Why a VM ended although nobody asked for it, for people; NULL unless it did.
ALTER TABLE cvms ADD COLUMN exit_reason TEXT;
