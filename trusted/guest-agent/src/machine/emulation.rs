//! What is spared in a machine whose CPU is emulated.

use std::fs;
use std::io;
use std::path::Path;

use cloister_attester::Platform;

use super::cpus::Cpus;

/// The kernel documentation's `randomize_va_space`: 0 is the same addresses for every program, at every start.
const RANDOMISATION: &str = "proc/sys/kernel/randomize_va_space";

/// Lets programs have the same addresses at every start, below `root`; whether it did. QEMU (7.2) translates code anew for
/// every address that it runs at, so that with random ones a program costs an emulated guest several times as much to
/// start.
///
/// Only where nothing protects the machine anyway: what the CPU is called is the host's word, and hardware that protects
/// from the host must not lose a defence by it.
pub(crate) fn keep_addresses(root: &Path, platform: Platform) -> io::Result<bool> {
    let nothing_protects = platform == Platform::Development;
    if !nothing_protects || !Cpus::parse(&fs::read_to_string(root.join("proc/cpuinfo"))?).are_emulated() {
        return Ok(false);
    }
    fs::write(root.join(RANDOMISATION), "0").map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMULATED: &str = "processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu\n";
    const REAL: &str = "processor\t: 0\nmodel name\t: AMD EPYC\nbugs\t\t: QEMU TCG CPU\n";

    #[test]
    fn only_an_emulated_machine_that_nothing_protects_keeps_addresses() {
        let cases = [
            (Platform::Development, EMULATED, "0"),
            (Platform::Development, REAL, "2"),
            (Platform::Development, "", "2"),
            (Platform::Tdx, EMULATED, "2"),
            (Platform::SevSnp, EMULATED, "2"),
            (Platform::Nitro, EMULATED, "2"),
        ];
        for (platform, cpu_info, left) in cases {
            let root = tempfile::tempdir().unwrap();
            let setting = root.path().join(RANDOMISATION);
            fs::create_dir_all(setting.parent().unwrap()).unwrap();
            fs::write(&setting, "2").unwrap();
            fs::write(root.path().join("proc/cpuinfo"), cpu_info).unwrap();
            assert_eq!(
                keep_addresses(root.path(), platform).unwrap(),
                left == "0",
                "{platform} {cpu_info:?}"
            );
            assert_eq!(fs::read_to_string(&setting).unwrap(), left, "{platform} {cpu_info:?}");
        }
    }

    #[test]
    fn a_kernel_without_the_setting_is_told_of() {
        let root = tempfile::tempdir().unwrap();
        assert!(keep_addresses(root.path(), Platform::Development).is_err());
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/cpuinfo"), EMULATED).unwrap();
        assert!(keep_addresses(root.path(), Platform::Development).is_err());
    }
}
