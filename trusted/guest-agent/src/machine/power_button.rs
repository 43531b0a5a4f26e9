//! The ACPI power button: how a hypervisor asks for an orderly shutdown when it has no other words.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use tracing::info;

const INPUT_DEVICES: &str = "/sys/class/input";
/// `struct input_event` of 64-bit Linux: two 8-byte times, then type, code (16 bits) and value (32).
const EVENT_BYTES: usize = 24;
/// Type `EV_KEY` (1), code `KEY_POWER` (116), value 1 (pressed).
const POWER_PRESSED: [u8; 8] = [1, 0, 116, 0, 1, 0, 0, 0];

/// Sends a message whenever the button is pressed. A machine without a button sends none.
pub(crate) fn watch(pressed: mpsc::Sender<()>) {
    let Some(mut device) = device().and_then(|path| File::open(path).ok()) else { return };
    std::thread::spawn(move || {
        let mut event = [0; EVENT_BYTES];
        while device.read_exact(&mut event).is_ok() {
            if event.ends_with(&POWER_PRESSED) {
                info!("the power button was pressed");
                if pressed.blocking_send(()).is_err() {
                    return;
                }
            }
        }
    });
}

fn device() -> Option<PathBuf> {
    let devices = fs::read_dir(INPUT_DEVICES).ok()?;
    let button = devices.flatten().find(|entry| {
        entry.file_name().to_string_lossy().starts_with("event")
            && fs::read_to_string(entry.path().join("device/name"))
                .is_ok_and(|name| name.trim() == "Power Button")
    })?;
    Some(Path::new("/dev/input").join(button.file_name()))
}
