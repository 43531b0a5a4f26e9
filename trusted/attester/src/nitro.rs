//! The Nitro security module.

use aws_nitro_enclaves_nsm_api::api::{Request, Response};
use aws_nitro_enclaves_nsm_api::driver::{nsm_exit, nsm_init, nsm_process_request};
use cloister_evidence::Measurement;
use cloister_evidence::report_data::ReportData;

use crate::hardware::{Hardware, HardwareError, Platform};

/// An open security module.
#[derive(Debug)]
pub(crate) struct Nitro {
    device: i32,
}

impl Nitro {
    pub(crate) fn open() -> Result<Self, HardwareError> {
        match nsm_init() {
            device if device >= 0 => Ok(Self { device }),
            _ => Err(HardwareError::File {
                path: "/dev/nsm".to_owned(),
                source: std::io::Error::last_os_error(),
            }),
        }
    }
}

impl Drop for Nitro {
    fn drop(&mut self) {
        nsm_exit(self.device);
    }
}

impl Hardware for Nitro {
    fn platform(&self) -> Platform {
        Platform::Nitro
    }

    fn boot_log(&mut self) -> Result<Vec<u8>, HardwareError> {
        Ok(Vec::new())
    }

    fn quote(&mut self, report_data: &ReportData) -> Result<Vec<u8>, HardwareError> {
        self.document(report_data)
    }

    fn extend(&mut self, _register: u32, _index: u32, _digest: &Measurement) -> Result<(), HardwareError> {
        Err(HardwareError::NoRuntimeRegister(Platform::Nitro))
    }

    fn document(&mut self, user_data: &[u8]) -> Result<Vec<u8>, HardwareError> {
        let user_data = (!user_data.is_empty()).then(|| user_data.to_vec().into());
        match nsm_process_request(
            self.device,
            Request::Attestation { user_data, nonce: None, public_key: None },
        ) {
            Response::Attestation { document } => Ok(document),
            Response::Error(code) => Err(HardwareError::Refused(format!("security module error {code:?}"))),
            _ => Err(HardwareError::Malformed("the security module answered another request")),
        }
    }
}
