//! Linux' device mapper: makes block devices of targets such as dm-verity.
//!
//! Nothing but the control device's own interface (`linux/dm-ioctl.h`), and of that what a guest needs: a
//! read-only device with one target. Whoever calls this is root.

mod message;

use std::fs::File;
use std::io;
use std::path::PathBuf;

use message::Message;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

const CONTROL: &str = "/dev/mapper/control";
const GROUP: u8 = 0xfd;
const CREATE: Opcode = opcode::read_write::<[u8; message::HEADER_BYTES]>(GROUP, 3);
const REMOVE: Opcode = opcode::read_write::<[u8; message::HEADER_BYTES]>(GROUP, 4);
/// Without its flag for suspending, this resumes: the loaded table becomes the live one.
const RESUME: Opcode = opcode::read_write::<[u8; message::HEADER_BYTES]>(GROUP, 6);
const LOAD_TABLE: Opcode = opcode::read_write::<[u8; message::HEADER_BYTES]>(GROUP, 9);

/// What a device is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Size of the device in sectors of 512 bytes.
    pub sectors: u64,
    /// Kind of target, such as `verity`; at most 15 bytes.
    pub kind: String,
    /// The words that this kind takes, as in the kernel's documentation of it; at most 3736 bytes.
    pub parameters: String,
}

/// A request that does not fit the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// A text is empty or holds a NUL.
    #[error("the {0} must not be empty nor hold a NUL")]
    Text(&'static str),
    /// A text is too long.
    #[error("the {what} must have at most {limit} bytes")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// Most bytes of it.
        limit: usize,
    },
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceMapperError {
    /// The control device cannot be opened: the module `dm-mod` is missing, or the caller is not root.
    #[error("cannot open {CONTROL}")]
    Open(#[source] io::Error),
    /// The request is none.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The kernel refuses; its log says more.
    #[error("the kernel refuses to {step} the device")]
    Refused {
        /// What was to be done.
        step: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// The control device.
#[derive(Debug)]
pub struct DeviceMapper(File);

impl DeviceMapper {
    /// Opens the control device.
    pub fn open() -> Result<Self, DeviceMapperError> {
        File::options().read(true).write(true).open(CONTROL).map(Self).map_err(DeviceMapperError::Open)
    }

    /// Makes the read-only device `name` (at most 127 bytes) of `target`, and returns its node, which the
    /// kernel's device file system holds. A device that cannot be completed is removed again.
    pub fn create_read_only(&self, name: &str, target: &Target) -> Result<PathBuf, DeviceMapperError> {
        let device = Message::about(name)?;
        let mut table = Message::read_only_table(name, target)?;
        let mut created = device.clone();
        self.issue::<CREATE>("create", &mut created)?;
        let completed = self
            .issue::<LOAD_TABLE>("set up", &mut table)
            .and_then(|()| self.issue::<RESUME>("start", &mut device.clone()));
        if let Err(error) = completed {
            // The first failure is the one to tell.
            let _ = self.issue::<REMOVE>("remove", &mut device.clone());
            return Err(error);
        }
        Ok(PathBuf::from(format!("/dev/dm-{}", created.minor())))
    }

    fn issue<const COMMAND: Opcode>(
        &self,
        step: &'static str,
        message: &mut Message,
    ) -> Result<(), DeviceMapperError> {
        #[expect(unsafe_code, reason = "a system call on memory whose layout only the kernel's header tells")]
        // SAFETY: all commands here take a pointer to `struct dm_ioctl`, followed by data, and neither read
        // nor write beyond the size that the structure itself declares. A `Message` declares its own size,
        // is aligned to 8 like the structure, has no padding and no invalid values, and is borrowed
        // mutably until the call returns.
        let answer = unsafe { ioctl(&self.0, Updater::<COMMAND, Message>::new(message)) };
        answer.map_err(|error| DeviceMapperError::Refused { step, source: error.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the macros of `linux/dm-ioctl.h` expand to.
    #[test]
    fn commands_have_the_numbers_of_the_kernel() {
        assert_eq!(
            [CREATE, REMOVE, RESUME, LOAD_TABLE],
            [0xc138_fd03, 0xc138_fd04, 0xc138_fd06, 0xc138_fd09]
        );
    }

    #[test]
    fn a_request_that_does_not_fit_never_reaches_the_kernel() {
        // Not a device mapper: any command on it would be refused by the kernel.
        let mapper = DeviceMapper(File::open("/dev/null").unwrap());
        let target = |kind: &str| Target { sectors: 8, kind: kind.to_owned(), parameters: "1".to_owned() };
        let error = mapper.create_read_only("", &target("verity")).unwrap_err();
        assert!(matches!(error, DeviceMapperError::Invalid(InvalidRequest::Text("name"))), "{error}");
        let error = mapper.create_read_only("root", &target("sixteen-bytes-xx")).unwrap_err();
        assert!(
            matches!(error, DeviceMapperError::Invalid(InvalidRequest::TooLong { what: "kind", .. })),
            "{error}"
        );
        let error = mapper.create_read_only("root", &target("verity")).unwrap_err();
        assert!(matches!(error, DeviceMapperError::Refused { step: "create", .. }), "{error}");
    }
}
