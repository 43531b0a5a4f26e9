//! What the kernel and the image say of themselves, as text. What is missing counts as nothing: a number less is
//! no reason to tell none.

/// Names that os-release(5) gives where the file does not.
const DEFAULT_NAME: &str = "Linux";

/// Memory and swap, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    /// What can be had without swapping.
    pub(super) available: u64,
    /// What nothing uses.
    pub(super) free: u64,
    pub(super) swap_total: u64,
    pub(super) swap_free: u64,
}

/// `NAME` and `VERSION` of os-release(5).
pub(super) fn os_release(text: &str) -> (String, String) {
    let value = |key: &str| {
        let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
        values.next_back().map(unquoted)
    };
    (value("NAME").unwrap_or_else(|| DEFAULT_NAME.to_owned()), value("VERSION").unwrap_or_default())
}

/// A value without the quotes and escapes that a shell would take away.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    if let Some(literal) = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return literal.to_owned();
    }
    let value = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    let mut plain = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

/// `/proc/meminfo`.
pub(super) fn memory(text: &str) -> Memory {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.unwrap_or(0).saturating_mul(1024)
    };
    Memory {
        total: of("MemTotal"),
        available: of("MemAvailable"),
        free: of("MemFree"),
        swap_total: of("SwapTotal"),
        swap_free: of("SwapFree"),
    }
}

/// The first three numbers of `/proc/loadavg`, times 100.
pub(super) fn load_averages(text: &str) -> [u32; 3] {
    let mut words = text.split_whitespace();
    [(); 3].map(|()| words.next().and_then(hundredths).unwrap_or(0))
}

/// A decimal number times 100; further digits are cut.
fn hundredths(number: &str) -> Option<u32> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digit = |position| match fraction.as_bytes().get(position) {
        None => Some(0),
        Some(byte) => char::from(*byte).to_digit(10),
    };
    let fraction = digit(0)? * 10 + digit(1)?;
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(fraction)
}

/// The device of the file system at a mount point, by `/proc/mounts`: what was mounted last is on top.
pub(super) fn device_at<'a>(mounts: &'a str, mount_point: &str) -> Option<&'a str> {
    let mut devices = mounts.lines().filter_map(|line| {
        let (device, rest) = line.split_once(' ')?;
        (rest.split(' ').next()? == mount_point).then_some(device)
    });
    devices.next_back()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_a_guest_says() {
        let release = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\nVERSION=\"13 (trixie)\"\n";
        assert_eq!(os_release(release), ("Debian GNU/Linux".to_owned(), "13 (trixie)".to_owned()));
        let meminfo = "MemTotal:        1000160 kB\nMemFree:          650064 kB\nMemAvailable:     800000 kB\nSwapCached:            7 kB\nSwapTotal:             0 kB\n";
        let memory = memory(meminfo);
        assert_eq!((memory.total, memory.available, memory.free), (1_024_163_840, 819_200_000, 665_665_536));
        assert_eq!((memory.swap_total, memory.swap_free), (0, 0));
        assert_eq!(load_averages("0.52 1.07 12.30 2/345 678\n"), [52, 107, 1230]);
        let mounts = "rootfs / rootfs rw 0 0\n/dev/dm-0 / erofs ro 0 0\n/dev/mapper/data /data ext4 rw 0 0\n/dev/mapper/data /data/containers ext4 rw 0 0\n";
        assert_eq!(device_at(mounts, "/"), Some("/dev/dm-0"));
        assert_eq!(device_at(mounts, "/data"), Some("/dev/mapper/data"));
        assert_eq!(device_at(mounts, "/dat"), None);
    }

    #[test]
    fn what_is_missing_or_odd_is_nothing() {
        assert_eq!(os_release(""), ("Linux".to_owned(), String::new()));
        assert_eq!(os_release("NAME='it'\nVERSION=a\\\"b\\"), ("it".to_owned(), "a\"b".to_owned()));
        assert_eq!(memory("MemTotal: many kB\nMemFree"), Memory::default());
        assert_eq!(memory(&format!("MemTotal: {} kB", u64::MAX)).total, u64::MAX);
        assert_eq!(load_averages("1.5 x"), [150, 0, 0]);
        assert_eq!(load_averages("4294967295.99 0.999 -1"), [0, 99, 0]);
    }

    proptest! {
        #[test]
        fn averages_are_read_to_the_hundredth(whole in 0u32..40_000_000, fraction in 0u32..100) {
            prop_assert_eq!(load_averages(&format!("{whole}.{fraction:02}"))[0], whole * 100 + fraction);
        }

        #[test]
        fn never_panics(text: String) {
            os_release(&text);
            memory(&text);
            load_averages(&text);
            device_at(&text, "/");
            os_release(&format!("NAME={text}"));
        }
    }
}
