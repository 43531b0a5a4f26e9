//! Aggregates: one hash for many registers (platform reference, section 4.7).

use sha2::{Digest as _, Sha256};

use crate::quote::TdReport;
use crate::{Measurement, Registers};

/// Aggregates of a trust domain's registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregates {
    /// The key provider: SHA-256 of its event's payload, or zeros without one.
    pub mr_key_provider: [u8; 32],
    /// The system without the application: MRTD, RTMR 0 to 2, key provider.
    pub mr_system: [u8; 32],
    /// Everything: MRTD, RTMR 0 to 3, and what the host named at launch unless all of it is zero.
    pub mr_aggregated: [u8; 32],
}

/// What the host names at launch: zeros unless it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchIdentity {
    /// MRCONFIGID.
    pub config_id: Measurement,
    /// MROWNER.
    pub owner: Measurement,
    /// MROWNERCONFIG.
    pub owner_config: Measurement,
}

impl LaunchIdentity {
    /// The host named nothing.
    pub const NONE: Self =
        Self { config_id: Measurement::ZERO, owner: Measurement::ZERO, owner_config: Measurement::ZERO };
}

impl Aggregates {
    /// Of registers, what the host named, and the payload of the event `key-provider`. For the form at
    /// boot time give RTMR 3 of [`EventLog::rtmr3_at_boot`](crate::EventLog::rtmr3_at_boot) and no key
    /// provider.
    #[must_use]
    pub fn new(registers: &Registers, launch: &LaunchIdentity, key_provider: Option<&[u8]>) -> Self {
        let mr_key_provider = key_provider.map_or([0; 32], |payload| Sha256::digest(payload).into());
        let mut system = Sha256::new();
        for register in [&registers.mrtd, &registers.rtmr0, &registers.rtmr1, &registers.rtmr2] {
            system.update(register.as_bytes());
        }
        let mut aggregated = system.clone();
        system.update(mr_key_provider);
        aggregated.update(registers.rtmr3.as_bytes());
        if *launch != LaunchIdentity::NONE {
            for register in [&launch.config_id, &launch.owner, &launch.owner_config] {
                aggregated.update(register.as_bytes());
            }
        }
        Self {
            mr_key_provider,
            mr_system: system.finalize().into(),
            mr_aggregated: aggregated.finalize().into(),
        }
    }
}

impl TdReport<'_> {
    /// What the host named at launch.
    #[must_use]
    pub const fn launch_identity(&self) -> LaunchIdentity {
        LaunchIdentity { config_id: self.mrconfigid, owner: self.mrowner, owner_config: self.mrownerconfig }
    }
}

/// Identity of a machine: SHA-256 of its PPID (TDX, SGX) or chip id (SNP).
#[must_use]
pub fn device_id(hardware_id: &[u8]) -> [u8; 32] {
    Sha256::digest(hardware_id).into()
}
