//! Reading fixed layouts from hostile bytes.

/// The input ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Truncated;

/// What is left of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Everything that was not read.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Truncated> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Bytes whose number a 32-bit field of the input gave.
    pub(crate) fn bytes_u32(&mut self, length: u32) -> Result<&'a [u8], Truncated> {
        self.bytes(usize::try_from(length).map_err(|_| Truncated)?)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Truncated> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Truncated> {
        self.array().map(|[byte]| *byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }
}
