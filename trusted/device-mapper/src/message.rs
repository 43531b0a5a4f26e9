//! What the control device is given and gives back: `struct dm_ioctl` of `linux/dm-ioctl.h` version 4, a
//! target (`struct dm_target_spec`) and its parameters, in one buffer.

use crate::{InvalidRequest, Target};

/// Bytes of `struct dm_ioctl`, which the number of every command carries.
pub(crate) const HEADER_BYTES: usize = 312;
/// Bytes of a whole message; more than any table of ours needs.
const MESSAGE_BYTES: usize = 4096;
const MESSAGE_SIZE: u32 = 4096;
/// Where targets begin: right after the header, which is a multiple of 8 as they must be aligned to.
const TARGET_START: u32 = 312;
/// Bytes of `struct dm_target_spec`.
const TARGET_BYTES: usize = 40;

/// Interface version: any kernel of major version 4 accepts the lowest minor.
const VERSION: [u32; 3] = [4, 0, 0];
const READ_ONLY: u32 = 1;

// Offsets in the header, then within the target.
const DATA_SIZE_AT: usize = 12;
const DATA_START_AT: usize = 16;
const TARGET_COUNT_AT: usize = 20;
const FLAGS_AT: usize = 28;
const DEVICE_AT: usize = 40;
const NAME_AT: usize = 48;
const LENGTH_AT: usize = HEADER_BYTES + 8;
const NEXT_AT: usize = HEADER_BYTES + 20;
const KIND_AT: usize = HEADER_BYTES + 24;
const PARAMETERS_AT: usize = HEADER_BYTES + TARGET_BYTES;

/// Longest name of a device and of a kind of target, in bytes; each is followed by a NUL.
const MAX_NAME_BYTES: usize = 127;
const MAX_KIND_BYTES: usize = 15;
/// Longest parameters of a target, in bytes, followed by a NUL and rounded up to 8.
const MAX_PARAMETERS_BYTES: usize = MESSAGE_BYTES - PARAMETERS_AT - 8;

/// One message. The kernel reads and writes at most its declared size, which is its own.
#[repr(C, align(8))]
#[derive(Clone)]
pub(crate) struct Message([u8; MESSAGE_BYTES]);

impl Message {
    /// About the device `name`, without a table.
    pub(crate) fn about(name: &str) -> Result<Self, InvalidRequest> {
        let mut message = Self([0; MESSAGE_BYTES]);
        for (index, number) in VERSION.into_iter().enumerate() {
            message.put(index * 4, &number.to_ne_bytes());
        }
        message.put(DATA_SIZE_AT, &MESSAGE_SIZE.to_ne_bytes());
        message.put(DATA_START_AT, &TARGET_START.to_ne_bytes());
        message.put(NAME_AT, text(name, MAX_NAME_BYTES, "name")?);
        Ok(message)
    }

    /// Loads a table of one target over the whole device `name`, for reading only.
    pub(crate) fn read_only_table(name: &str, target: &Target) -> Result<Self, InvalidRequest> {
        let mut message = Self::about(name)?;
        let parameters = text(&target.parameters, MAX_PARAMETERS_BYTES, "parameters")?;
        let next = (TARGET_BYTES + parameters.len() + 1).next_multiple_of(8);
        message.put(TARGET_COUNT_AT, &1_u32.to_ne_bytes());
        message.put(FLAGS_AT, &READ_ONLY.to_ne_bytes());
        message.put(LENGTH_AT, &target.sectors.to_ne_bytes());
        message.put(NEXT_AT, &u32::try_from(next).unwrap_or(MESSAGE_SIZE).to_ne_bytes());
        message.put(KIND_AT, text(&target.kind, MAX_KIND_BYTES, "kind")?);
        message.put(PARAMETERS_AT, parameters);
        Ok(message)
    }

    /// Minor number of the device, once the kernel has filled it in (`huge_encode_dev`: 20 bits, around
    /// the 12 of the major number).
    pub(crate) fn minor(&self) -> u32 {
        let device = self.0.get(DEVICE_AT..DEVICE_AT + 4).and_then(|bytes| bytes.try_into().ok());
        let device = u32::from_ne_bytes(device.unwrap_or_default());
        (device & 0xff) | ((device >> 12) & 0x000f_ff00)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }
}

/// The bytes of a text that fits, with a NUL after it.
fn text<'a>(text: &'a str, limit: usize, what: &'static str) -> Result<&'a [u8], InvalidRequest> {
    if text.is_empty() || text.contains('\0') {
        return Err(InvalidRequest::Text(what));
    }
    if text.len() > limit {
        return Err(InvalidRequest::TooLong { what, limit });
    }
    Ok(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Written out by hand after the structures of `linux/dm-ioctl.h`: header, target, parameters.
    #[test]
    fn a_table_has_the_layout_of_the_kernel() {
        let target =
            Target { sectors: 411_208, kind: "verity".to_owned(), parameters: "1 /dev/vda".to_owned() };
        let message = Message::read_only_table("root", &target).unwrap();
        let expected = [
            // Version 4.0.0, size 4096, data at 312, one target, open count, flags, event, padding, device.
            "040000000000000000000000",
            "00100000",
            "38010000",
            "01000000",
            "00000000",
            "01000000",
            "00000000",
            "00000000",
            "0000000000000000",
            // Name (128), UUID (129), 7 bytes to the alignment.
            "726f6f74",
            &"00".repeat(124),
            &"00".repeat(136),
            // Sectors from 0, 411208 of them, status, next at 40 + 11 rounded up, kind.
            "0000000000000000",
            "4846060000000000",
            "00000000",
            "38000000",
            "76657269747900000000000000000000",
            // Parameters.
            "31202f6465762f76646100",
        ]
        .concat();
        let expected = hex::decode(expected).unwrap();
        let (start, rest) = message.0.split_at(expected.len());
        assert_eq!(start, expected);
        assert!(rest.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn device_numbers_are_decoded_as_the_kernel_encodes_them() {
        let mut message = Message::about("root").unwrap();
        assert_eq!(message.minor(), 0);
        for (encoded, minor) in [(0x0000_fd03_u32, 3), (0x0010_fd03, 0x103), (0xffff_fdff, 0xf_ffff)] {
            message.put(DEVICE_AT, &encoded.to_ne_bytes());
            assert_eq!(message.minor(), minor);
        }
    }

    proptest! {
        #[test]
        fn texts_fit_or_are_refused(name in "[a-z\0]{0,200}", kind in "[a-z\0]{0,20}", length in 0_usize..5000) {
            let target = Target { sectors: 8, kind: kind.clone(), parameters: "p".repeat(length) };
            let fits = |text: &str, limit| !text.is_empty() && !text.contains('\0') && text.len() <= limit;
            let good = fits(&name, MAX_NAME_BYTES) && fits(&kind, MAX_KIND_BYTES)
                && (1..=MAX_PARAMETERS_BYTES).contains(&length);
            let message = Message::read_only_table(&name, &target);
            prop_assert_eq!(message.is_ok(), good);
            if let Ok(message) = message {
                // Every text is still followed by its NUL.
                prop_assert_eq!(message.0[NAME_AT + name.len()], 0);
                prop_assert_eq!(message.0[KIND_AT + kind.len()], 0);
                prop_assert_eq!(message.0[PARAMETERS_AT + length], 0);
            }
        }
    }
}
