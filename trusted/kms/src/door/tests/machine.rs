//! Machines that ask, with evidence minted for the test.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use cloister_app_compose::{AppId, OsImageHash};
use cloister_development_tee::{Platform, TdReport};
use cloister_evidence::{
    EventLog, ImageMeasurement, LaunchMeasurement, Measurement, Registers, RuntimeEvent, VmConfig,
};
use cloister_ra_tls::{AttestedCertificate, AttestedKey, Evidence, Subject};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::net::UnixListener;

use super::lab::{app, days, now};
use cloister_agent_client::Agent;

/// What a machine booted and measured.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) app: AppId,
    pub(crate) compose_hash: [u8; 32],
    pub(crate) instance: Vec<u8>,
    pub(crate) kernel: &'static str,
    /// Events behind `boot-mr-done`.
    pub(crate) further: Vec<RuntimeEvent>,
}

pub(crate) struct Holder {
    pub(crate) key: AttestedKey,
    pub(crate) certificate: AttestedCertificate,
}

impl Machine {
    /// Of this application.
    pub(crate) fn of(number: u8) -> Self {
        Self {
            app: app(number),
            compose_hash: [number; 32],
            instance: vec![9; 20],
            kernel: "kernel",
            further: Vec::new(),
        }
    }

    fn image(&self) -> ImageMeasurement {
        ImageMeasurement {
            firmware: Measurement::of("firmware"),
            kernel: Measurement::of(self.kernel),
            initrd: Measurement::of("initrd"),
            cmdline: "console=hvc0".to_owned(),
        }
    }

    pub(crate) fn vm_config(&self) -> String {
        let measurement = serde_json::to_vec(&self.image()).unwrap();
        let checksums = format!("{}  measurement.json\n", hex::encode(Sha256::digest(&measurement)));
        let config = VmConfig {
            spec_version: 1,
            os_image_hash: OsImageHash::from_bytes(Sha256::digest(&checksums).into()),
            cpu_count: 2,
            memory_size: 1 << 30,
            image: None,
            launch_measurement: Some(LaunchMeasurement {
                checksum_file: BASE64_STANDARD.encode(&checksums),
                measurement: BASE64_STANDARD.encode(&measurement),
            }),
        };
        serde_json::to_string(&config).unwrap()
    }

    fn measured(&self) -> (EventLog, Registers) {
        let launch = self.image().launch(2, 1 << 30);
        let mut events = vec![
            RuntimeEvent::new("system-preparing", []),
            RuntimeEvent::new("app-id", *self.app.as_bytes()),
            RuntimeEvent::new("compose-hash", self.compose_hash),
            RuntimeEvent::new("instance-id", self.instance.clone()),
            RuntimeEvent::new("boot-mr-done", []),
        ];
        events.extend(self.further.clone());
        let log =
            EventLog::new(launch.events.into_iter().chain(events.iter().map(RuntimeEvent::entry)).collect());
        let [rtmr0, rtmr1, rtmr2, rtmr3] = log.replay().unwrap();
        (log, Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 })
    }

    /// Evidence of this machine over `key`.
    pub(crate) fn evidence(&self, platform: &Platform, key: &AttestedKey) -> Evidence {
        let (log, registers) = self.measured();
        let report = TdReport::new(registers, [0; 48], key.report_data());
        Evidence {
            quote: Some(platform.quote(&report).unwrap()),
            event_log: serde_json::to_string(&log).unwrap(),
            attestation: None,
        }
    }

    /// Evidence over any bytes for whoever asks at the socket of this machine's agent, in a directory of its own.
    pub(crate) fn serve(&self, dir: &Path, platform: &Arc<Platform>) -> Agent {
        let socket = dir.join(format!("{}-{}", self.kernel, hex::encode(self.compose_hash.split_at(4).0)));
        let listener = UnixListener::bind(&socket).unwrap();
        let (machine, platform) = (self.clone(), Arc::clone(platform));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (machine, platform) = (machine.clone(), Arc::clone(&platform));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (machine, platform) = (machine.clone(), Arc::clone(&platform));
                    async move {
                        assert_eq!(request.uri().path(), "/GetQuote");
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let asked: serde_json::Value = serde_json::from_slice(&body).unwrap();
                        let over = hex::decode(asked["report_data"].as_str().unwrap()).unwrap();
                        let answer = machine.quoted(&platform, over.try_into().unwrap()).to_string();
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer))))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Agent::new(&socket)
    }

    fn quoted(&self, platform: &Platform, report_data: [u8; 64]) -> serde_json::Value {
        let (log, registers) = self.measured();
        let quote = platform.quote(&TdReport::new(registers, [0; 48], report_data)).unwrap();
        serde_json::json!({
            "quote": hex::encode(quote),
            "event_log": serde_json::to_string(&log).unwrap(),
            "vm_config": self.vm_config(),
        })
    }

    pub(crate) fn holder(&self, platform: &Platform) -> Holder {
        let key = AttestedKey::generate().unwrap();
        let evidence = self.evidence(platform, &key);
        Holder::new(key, &evidence, now() - days(1), now() + days(40))
    }
}

impl Holder {
    pub(crate) fn new(key: AttestedKey, evidence: &Evidence, from: Timestamp, until: Timestamp) -> Self {
        let subject = Subject::new("a machine", vec!["guest".to_owned()], from, until);
        let certificate = key.certificate(evidence, &subject, None).unwrap();
        Self { key, certificate }
    }
}
