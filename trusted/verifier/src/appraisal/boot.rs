//! What the machine booted: firmware, shape, kernel, command line and initial RAM disk.

use cloister_app_compose::OsImageHash;
use cloister_evidence::{Measurement, Registers, VmConfig, VmConfigError};

use super::claim::{Claim, ClaimId};
use super::input::ExpectedRegisters;
use super::quote::ProvenQuote;
use crate::TrustRoot;

const ID: ClaimId = ClaimId::Boot;

/// A boot that was compared with something known.
#[derive(Debug, Clone, Copy)]
pub(super) enum Booted {
    /// The registers are those that the documents of this image lead to.
    Image(OsImageHash),
    /// They are those that were expected.
    Expected,
}

/// The registers of a boot with what each of them says when it differs.
fn boot_registers(registers: &Registers) -> [(&'static str, Measurement, &'static str); 4] {
    [
        ("MRTD", registers.mrtd, "the firmware"),
        ("RTMR0", registers.rtmr0, "the number of CPUs or the size of the memory"),
        ("RTMR1", registers.rtmr1, "the kernel"),
        ("RTMR2", registers.rtmr2, "the kernel command line or the initial RAM disk"),
    ]
}

/// Judges the boot of a machine with this description.
pub(super) fn judge(
    quote: Option<&ProvenQuote<'_>>,
    vm_config: &str,
    expected: &ExpectedRegisters,
) -> (Claim, Option<Booted>) {
    let (claim, booted) = match quote {
        None => (Claim::not_checked(ID, "The registers are unknown without a valid quote."), None),
        Some(quote) => compare(quote, vm_config, expected),
    };
    (claim.required(), booted)
}

fn compare(
    quote: &ProvenQuote<'_>,
    vm_config: &str,
    expected: &ExpectedRegisters,
) -> (Claim, Option<Booted>) {
    let actual = boot_registers(&quote.registers);
    let given = [expected.mrtd, expected.rtmr0, expected.rtmr1, expected.rtmr2];
    if let Some(claim) = difference(&actual, given, "expected", "the one expected") {
        return (claim, None);
    }
    let complete = given.iter().all(Option::is_some);
    // Only the development TEE measures by the rules of this image format; hardware measures pages of
    // memory and tables of the firmware, for which values must come from elsewhere.
    if quote.verified.trust_root != TrustRoot::Development {
        return if complete {
            (as_expected(&actual), Some(Booted::Expected))
        } else {
            (unknown(&actual), None)
        };
    }
    match (described(vm_config), complete) {
        (Ok((vm_config, launched)), _) => {
            let launched = launched.map(Some);
            let claim = difference(&actual, launched, "described", "what the machine's description leads to");
            claim.map_or_else(|| as_described(&actual, &vm_config), |claim| (claim, None))
        }
        (Err(_), true) => (as_expected(&actual), Some(Booted::Expected)),
        (Err(reason), false) => (Claim::fails(ID, reason), None),
    }
}

/// The description and the registers that it leads to.
fn described(text: &str) -> Result<(VmConfig, [Measurement; 4]), String> {
    let vm_config: VmConfig = serde_json::from_str(text)
        .map_err(|error| format!("The description of the machine cannot be read: {error}."))?;
    let measurement = vm_config.image_measurement().map_err(|error| match error {
        VmConfigError::NoMeasurement => {
            "The description of the machine lacks the image's measurement, so nothing says what the registers \
             should be."
                .to_owned()
        }
        error => format!("The description of the machine proves nothing: {error}."),
    })?;
    let launch = measurement.launch(vm_config.cpu_count, vm_config.memory_size);
    let [rtmr0, rtmr1, rtmr2] = launch.rtmr;
    Ok((vm_config, [launch.mrtd, rtmr0, rtmr1, rtmr2]))
}

fn difference(
    actual: &[(&'static str, Measurement, &'static str); 4],
    wanted: [Option<Measurement>; 4],
    label: &str,
    than: &str,
) -> Option<Claim> {
    let different: Vec<_> = actual
        .iter()
        .zip(wanted)
        .filter_map(|((name, actual, about), wanted)| {
            let wanted = wanted.filter(|wanted| wanted != actual)?;
            Some((*name, *actual, wanted, *about))
        })
        .collect();
    if different.is_empty() {
        return None;
    }
    let names: Vec<_> = different.iter().map(|(name, ..)| *name).collect();
    let about: Vec<_> = different.iter().map(|(.., about)| *about).collect();
    let sentence = format!(
        "The machine booted something else: {} differs from {than}, that is {}.",
        names.join(" and "),
        about.join(", and ")
    );
    let claim = Claim::fails(ID, sentence);
    Some(different.into_iter().fold(claim, |claim, (name, actual, wanted, _)| {
        claim.fact(format!("{name} of the quote"), actual).fact(format!("{name} {label}"), wanted)
    }))
}

fn with_registers(claim: Claim, actual: &[(&'static str, Measurement, &'static str); 4]) -> Claim {
    actual.iter().fold(claim, |claim, (name, value, _)| claim.fact(*name, value))
}

fn as_expected(actual: &[(&'static str, Measurement, &'static str); 4]) -> Claim {
    let sentence =
        "Firmware, machine, kernel, command line and initial RAM disk have the expected registers.";
    with_registers(Claim::holds(ID, sentence), actual)
}

fn unknown(actual: &[(&'static str, Measurement, &'static str); 4]) -> Claim {
    let sentence = "What the machine booted was not compared: registers of this hardware cannot be computed \
                    from its description. Give the values expected for MRTD and RTMR0 to RTMR2.";
    with_registers(Claim::not_checked(ID, sentence), actual)
}

fn as_described(
    actual: &[(&'static str, Measurement, &'static str); 4],
    vm_config: &VmConfig,
) -> (Claim, Option<Booted>) {
    let sentence = format!(
        "Firmware, kernel, command line and initial RAM disk are those of image {}, on {} virtual CPUs with \
         {} MiB of memory.",
        vm_config.os_image_hash,
        vm_config.cpu_count,
        vm_config.memory_size >> 20
    );
    let claim = Claim::holds(ID, sentence).maybe("image, by its node", vm_config.image.as_ref());
    let claim = claim.fact("os_image_hash", vm_config.os_image_hash);
    (with_registers(claim, actual), Some(Booted::Image(vm_config.os_image_hash)))
}
