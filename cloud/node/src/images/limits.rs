use std::time::Duration;

/// How much the store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one archive, packed and unpacked.
    pub archive_bytes: u64,
    /// Entries of one archive.
    pub entries: u64,
    /// Bytes of one manifest, index or configuration.
    pub manifest_bytes: u64,
    /// Images of one workspace.
    pub images_per_workspace: usize,
    /// Bytes of the images of one workspace together; what several of its images share counts once.
    pub workspace_bytes: u64,
    /// Imports of one workspace at a time.
    pub imports_per_workspace: usize,
    /// Longest pause within an upload.
    pub upload_pause: Duration,
    /// Bytes of the disk that imports leave free.
    pub disk_reserve: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            archive_bytes: 20 << 30,
            entries: 10_000,
            manifest_bytes: 4 << 20,
            images_per_workspace: 1_000,
            workspace_bytes: 100 << 30,
            imports_per_workspace: 4,
            upload_pause: Duration::from_mins(1),
            disk_reserve: 1 << 30,
        }
    }
}
