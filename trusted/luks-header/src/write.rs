//! How a header gets onto a disk so that a power cut leaves the former one or the new one.

use crate::binary::Copy;
use crate::{COPY_BYTES, HEADER_BYTES, Header, KEY_AREA_BYTES, KEY_AREAS, UNFINISHED};

/// Bytes to write, and then to make durable before the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// From the beginning of the disk.
    pub offset: usize,
    /// What to write there.
    pub bytes: Vec<u8>,
}

impl Header {
    /// The writes, in order, that put this header onto a disk that begins with `disk`; none if it is there.
    /// Each must be durable before the next begins.
    ///
    /// The new key area lies where nobody reads; then the second copy names it, then the first; last, the key
    /// area that is no longer in use is wiped, and with it the way by which the former key opened the disk.
    /// A boot after a power cut finds the same work left, and does it.
    #[must_use]
    pub fn writes_onto(&self, disk: &[u8]) -> Vec<Write> {
        let image = self.image();
        let used = self.metadata.key_area().start;
        let unused = KEY_AREAS.into_iter().filter(|area| *area != used);
        let copies = [Copy::Second.offset(), Copy::First.offset()].map(|offset| (offset, COPY_BYTES));
        let parts = std::iter::once((used, KEY_AREA_BYTES))
            .chain(copies)
            .chain(unused.map(|area| (area, KEY_AREA_BYTES)));
        let mut writes: Vec<Write> = parts
            .filter_map(|(offset, length)| {
                let bytes = image.get(offset..offset + length)?;
                (disk.get(offset..offset + length) != Some(bytes))
                    .then(|| Write { offset, bytes: bytes.to_vec() })
            })
            .collect();
        if disk.iter().take(HEADER_BYTES).all(|byte| *byte == 0) {
            // What is interrupted from here on would otherwise look like something of somebody else's.
            writes.insert(0, Write { offset: 0, bytes: UNFINISHED.to_vec() });
        }
        writes
    }
}
