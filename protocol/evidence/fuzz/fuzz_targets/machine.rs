#![no_main]

use cloister_evidence::{MrConfig, VmConfig};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(config) = MrConfig::parse(text) {
        assert_eq!(config.to_json(), text);
    }
    let Ok(config) = serde_json::from_str::<VmConfig>(text) else { return };
    if let Ok(image) = config.image_measurement() {
        let launch = image.launch(config.cpu_count, config.memory_size);
        assert_eq!(launch.mrtd, image.firmware);
    }
});
