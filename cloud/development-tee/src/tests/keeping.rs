//! What must survive: the vendor's and the platform's keys, the register of platforms, and the registers
//! of machines.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Barrier;

use crate::{ExtendError, MachineRegisters, PlatformKey, RegisterError, Registration, Vendor};
use cloister_evidence::{ImageMeasurement, Measurement};
use jiff::Timestamp;
use proptest::prelude::*;

fn now() -> Timestamp {
    "2026-11-21T12:34:56Z".parse().unwrap()
}

fn image() -> ImageMeasurement {
    ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("initrd"),
        cmdline: "console=ttyS0".to_owned(),
    }
}

fn launch(path: &Path) -> MachineRegisters {
    MachineRegisters::launch(path, &image(), 2, 2 << 30, [1; 48]).unwrap()
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_vendor_stays_the_same_and_its_keys_are_its_owners() {
    let dir = tempfile::tempdir().unwrap();
    let first = Vendor::load_or_create(dir.path(), now()).unwrap();
    let second = Vendor::load_or_create(dir.path(), now() + jiff::SignedDuration::from_hours(99)).unwrap();
    assert_eq!(first.root_der(), second.root_der());
    assert_eq!(files(dir.path()).len(), 6);
    for file in files(dir.path()) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    assert!(!format!("{first:?}").contains("PRIVATE"));

    let key = PlatformKey::load_or_create(&dir.path().join("platform")).unwrap();
    let again = PlatformKey::load_or_create(&dir.path().join("platform")).unwrap();
    assert_eq!((key.ppid(), key.public_key()), (again.ppid(), again.public_key()));
    for file in files(&dir.path().join("platform")) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(!format!("{key:?}").contains("PRIVATE"));
}

#[test]
fn vendors_that_start_together_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let (count, start) = (8, Barrier::new(8));
    let vendors: Vec<Vendor> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    Vendor::load_or_create(dir.path(), now()).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let chains: Vec<_> = vendors
        .iter()
        .map(|vendor| {
            let collateral = vendor.collateral(now()).unwrap();
            (collateral.pck_crl_issuer_chain, collateral.tcb_info_issuer_chain)
        })
        .collect();
    assert!(chains.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_node_gets_its_own_platform_certified_and_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let vendor = Vendor::load_or_create(dir.path(), now()).unwrap();
    let mine = PlatformKey::generate().unwrap().registration().unwrap();
    let first = vendor.register_platform("one", &mine, now()).unwrap();
    let again = Registration { ppid: mine.ppid.to_uppercase(), ..mine.clone() };
    assert_eq!(vendor.register_platform("one", &again, now()).unwrap(), first);
    assert_eq!(vendor.platforms().unwrap(), std::slice::from_ref(&first));
    assert_eq!(first.certificate_chain.matches("BEGIN CERTIFICATE").count(), 3);

    let refused = vendor.register_platform("two", &mine, now()).unwrap_err();
    assert!(matches!(refused, RegisterError::Taken));
    let text = |text: &str| text.to_owned();
    for malformed in [
        Registration { ppid: text("../../etc"), ..mine.clone() },
        Registration { public_key: text("04"), ..mine.clone() },
        Registration { public_key: text("zz"), ..mine.clone() },
        Registration { proof: text("00"), ..mine.clone() },
        Registration { ppid: text(""), public_key: text(""), proof: text("") },
    ] {
        let refused = vendor.register_platform("one", &malformed, now()).unwrap_err();
        assert!(matches!(refused, RegisterError::Malformed));
    }
    assert_eq!(vendor.platforms().unwrap().len(), 1);
}

/// Whoever has a certificate with his identity for the key of another's platform can put it into that
/// platform's quotes, which do not sign it.
#[test]
fn a_key_is_certified_for_those_who_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let vendor = Vendor::load_or_create(dir.path(), now()).unwrap();
    let [theirs, mine] = [(); 2].map(|()| PlatformKey::generate().unwrap().registration().unwrap());
    vendor.register_platform("one", &theirs, now()).unwrap();
    for unproven in [
        Registration { ppid: mine.ppid.clone(), ..theirs.clone() },
        Registration { public_key: theirs.public_key.clone(), ..mine.clone() },
        Registration { public_key: format!("02{}", &mine.public_key[2..]), ..mine.clone() },
        Registration { public_key: format!("04{}", "01".repeat(64)), ..mine.clone() },
        Registration { proof: "00".repeat(64), ..mine.clone() },
    ] {
        let refused = vendor.register_platform("two", &unproven, now()).unwrap_err();
        assert!(matches!(refused, RegisterError::Unproven), "{unproven:?}");
    }
    assert_eq!(vendor.platforms().unwrap().len(), 1);
    vendor.register_platform("two", &mine, now()).unwrap();
    let node_of = |request: &Registration| {
        let ppid = hex::decode(&request.ppid).unwrap().try_into().unwrap();
        vendor.node_of(&ppid).unwrap()
    };
    assert_eq!((node_of(&theirs).as_deref(), node_of(&mine).as_deref()), (Some("one"), Some("two")));
    let unknown = PlatformKey::generate().unwrap().registration().unwrap();
    assert_eq!(node_of(&unknown), None);
}

#[test]
fn one_node_cannot_fill_the_register() {
    let dir = tempfile::tempdir().unwrap();
    let vendor = Vendor::load_or_create(dir.path(), now()).unwrap();
    let platforms: Vec<_> =
        (0..=64).map(|_| PlatformKey::generate().unwrap().registration().unwrap()).collect();
    let register = |node: &str, number: usize| vendor.register_platform(node, &platforms[number], now());
    for number in 0..64 {
        register("one", number).unwrap();
    }
    assert!(matches!(register("one", 64), Err(RegisterError::TooMany)));
    register("one", 3).unwrap();
    register("two", 64).unwrap();
}

#[test]
fn a_launch_measures_by_the_rules_and_only_the_extensible_registers_extend() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registers");
    let mut machine = launch(&path);
    let expected = image().launch(2, 2 << 30);
    let registers = machine.registers();
    assert_eq!(registers.mrtd, expected.mrtd);
    assert_eq!([registers.rtmr0, registers.rtmr1, registers.rtmr2], expected.rtmr);
    assert_eq!(registers.rtmr3, Measurement::ZERO);
    assert_eq!(machine.boot_events(), expected.events);
    for register in [0, 1, 4, u32::MAX] {
        let refused = machine.extend(register, 0, Measurement::of("x")).unwrap_err();
        assert!(matches!(refused, ExtendError::Register));
    }
    assert_eq!(machine.registers(), registers);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn extensions_are_numbered_from_nothing_without_gaps_and_never_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = launch(&dir.path().join("registers"));
    machine.extend(3, 0, Measurement::of("a")).unwrap();
    let before = machine.registers();
    assert!(matches!(machine.extend(3, 0, Measurement::of("b")), Err(ExtendError::Made(0))));
    assert!(matches!(
        machine.extend(3, 2, Measurement::of("c")),
        Err(ExtendError::Early { asked: 2, made: 1 })
    ));
    assert!(matches!(machine.extend(3, u32::MAX, Measurement::of("c")), Err(ExtendError::TooMany)));
    machine.extend(3, 0, Measurement::of("a")).unwrap();
    assert_eq!(machine.registers(), before);
    for index in 1..4096 {
        machine.extend(3, index, Measurement::of(index.to_string())).unwrap();
    }
    assert!(matches!(machine.extend(3, 4096, Measurement::of("x")), Err(ExtendError::TooMany)));
}

#[test]
fn a_new_launch_forgets_and_a_torn_line_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registers");
    assert!(MachineRegisters::recover(&path).unwrap().is_none());
    let mut machine = launch(&path);
    machine.extend(3, 0, Measurement::of("a")).unwrap();
    let one = machine.registers();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(br#"{"register":3,"dig"#).unwrap();
    let mut recovered = MachineRegisters::recover(&path).unwrap().unwrap();
    assert_eq!(recovered.registers(), one);
    recovered.extend(3, 1, Measurement::of("b")).unwrap();
    let two = recovered.registers();
    assert_eq!(MachineRegisters::recover(&path).unwrap().unwrap().registers(), two);

    launch(&path);
    let fresh = MachineRegisters::recover(&path).unwrap().unwrap().registers();
    assert_eq!(fresh.rtmr3, Measurement::ZERO);
}

#[test]
fn damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registers");
    launch(&path);
    let good = std::fs::read(&path).unwrap();
    for damage in ["{}\n", "not json\n", "{\"register\":1,\"digest\":\"00\"}\n", "\n"] {
        std::fs::write(&path, [good.as_slice(), damage.as_bytes()].concat()).unwrap();
        MachineRegisters::recover(&path).unwrap_err();
        std::fs::write(&path, damage).unwrap();
        MachineRegisters::recover(&path).unwrap_err();
    }
    std::fs::write(&path, "").unwrap();
    MachineRegisters::recover(&path).unwrap_err();
}

proptest! {
    /// A guest repeats what it got no answer for, and the node dies at any moment: the registers are those
    /// of one clean run.
    #[test]
    fn repeats_and_restarts_change_nothing(
        digests in proptest::collection::vec((2u32..=3, any::<[u8; 4]>()), 1..24),
        disturbances in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..24),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut clean = launch(&dir.path().join("clean"));
        let path = dir.path().join("disturbed");
        let mut machine = launch(&path);
        let mut counts = [0u32; 4];
        let mut made = Vec::new();
        for (at, (register, bytes)) in digests.iter().enumerate() {
            let count = &mut counts[*register as usize];
            let extension = (*register, *count, Measurement::of(bytes));
            *count += 1;
            clean.extend(extension.0, extension.1, extension.2).unwrap();
            machine.extend(extension.0, extension.1, extension.2).unwrap();
            made.push(extension);
            for (which, restart) in disturbances.iter().skip(at % 5).step_by(5) {
                if *restart {
                    machine = MachineRegisters::recover(&path).unwrap().unwrap();
                }
                let (register, index, digest) = made[which.index(made.len())];
                machine.extend(register, index, digest).unwrap();
            }
        }
        prop_assert_eq!(machine.registers(), clean.registers());
        let recovered = MachineRegisters::recover(&path).unwrap().unwrap();
        prop_assert_eq!(recovered.registers(), clean.registers());
    }
}
