//! Descriptions of machines, and what a launch measures.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_evidence::{EventLog, LaunchMeasurement, Measurement, VmConfig, VmConfigError};

use crate::samples;

/// The sample after a change of its documents.
fn with(change: impl FnOnce(&mut LaunchMeasurement)) -> VmConfig {
    let mut config = samples::vm_config();
    change(config.launch_measurement.as_mut().unwrap());
    config
}

#[test]
fn the_way_from_the_images_hash_to_its_measurement_is_checked() {
    let image = samples::vm_config().image_measurement().unwrap();
    assert_eq!(image.kernel, Measurement::of("kernel"));

    let mut bare = samples::vm_config();
    bare.launch_measurement = None;
    assert_eq!(bare.image_measurement(), Err(VmConfigError::NoMeasurement));
    let mut other = samples::vm_config();
    other.os_image_hash = cloister_app_compose::OsImageHash::from_bytes([0; 32]);
    assert_eq!(other.image_measurement(), Err(VmConfigError::ChecksumFile));

    let changed = |text: &str, from: &str, to: &str| {
        let text = String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap();
        assert!(text.contains(from));
        BASE64_STANDARD.encode(text.replace(from, to))
    };
    let kernel = Measurement::of("kernel").to_string();
    let evil = Measurement::of("evil").to_string();
    let forged = with(|of| of.measurement = changed(&of.measurement, &kernel, &evil));
    assert_eq!(forged.image_measurement(), Err(VmConfigError::Measurement));
    let listed = with(|of| of.checksum_file = changed(&of.checksum_file, "  kernel", "  kernal"));
    assert_eq!(listed.image_measurement(), Err(VmConfigError::ChecksumFile));
    for text in ["", "!", "e30"] {
        let error = with(|of| of.measurement = text.to_owned()).image_measurement().unwrap_err();
        assert!(matches!(error, VmConfigError::Malformed(_) | VmConfigError::Measurement), "{text}");
        assert!(with(|of| of.checksum_file = text.to_owned()).image_measurement().is_err(), "{text}");
    }
}

#[test]
fn every_part_of_a_launch_shows_in_a_register_and_in_the_log() {
    let image = samples::vm_config().image_measurement().unwrap();
    let launch = image.launch(2, 2 << 30);
    let built = EventLog::new(launch.events.clone()).replay().unwrap();
    assert_eq!(built, [launch.rtmr[0], launch.rtmr[1], launch.rtmr[2], Measurement::ZERO]);
    let once = |digest: &Measurement| Measurement::ZERO.extended_by(digest);
    assert_eq!(launch.mrtd, Measurement::of("firmware"));
    assert_eq!(launch.rtmr[0], once(&Measurement::of(r#"{"cpu_count":2,"memory_size":2147483648}"#)));
    assert_eq!(launch.rtmr[1], once(&Measurement::of("kernel")));
    let cmdline: Vec<u8> =
        "console=ttyS0 initrd=initrd".bytes().flat_map(|byte| [byte, 0]).chain([0, 0]).collect();
    assert_eq!(launch.rtmr[2], once(&Measurement::of(cmdline)).extended_by(&Measurement::of("initrd")));
}
