//! An RA-TLS handshake against what it is made of: a plain TLS 1.3 handshake and one verification of a
//! quote, side by side in one run, over loopback.
//!
//! `cargo bench -p cloister-ra-tls --bench handshake` prints the table. Client and server share the
//! machine and one runtime. Collateral is there already; the peer is new in each handshake, except in the
//! line that says otherwise.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench prints, and takes the time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloister_development_tee::{Platform, PlatformKey, TdReport, Vendor, VendorOptions};
use cloister_evidence::{
    EventLog, ImageMeasurement, Measurement, PlatformEvidence, Registers, RuntimeEvent, VersionedAttestation,
};
use cloister_ra_tls::{
    Acceptor, AttestedCertificate, AttestedKey, Clients, Connector, Evidence, PeerPolicy, PeerVerifier,
    Subject, client_config, server_config,
};
use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralSources, InProcess, Policy, TrustRoot,
    TrustRoots, Verifier,
};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const ROUNDS: usize = 300;
/// The allowed ratio.
const ALLOWED: f64 = 2.0;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Setting {
    verifier: Verifier,
    key: AttestedKey,
    certificate: AttestedCertificate,
    quote: Vec<u8>,
}

fn setting(now: Timestamp) -> Result<Setting, Failure> {
    let vendor = Vendor::in_memory(VendorOptions::default(), now)?;
    let platform_key = PlatformKey::generate()?;
    let chain = vendor.issue_platform_certificate(platform_key.ppid(), platform_key.public_key(), now)?;
    let platform = Platform::new(platform_key, &chain)?;
    let key = AttestedKey::generate()?;

    let image = ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("initrd"),
        cmdline: "console=hvc0".to_owned(),
    };
    let launch = image.launch(2, 1 << 30);
    let events = vec![RuntimeEvent::new("app-id", [7; 20]), RuntimeEvent::new("compose-hash", [7; 32])];
    let log: Vec<_> = launch.events.into_iter().chain(events.iter().map(RuntimeEvent::entry)).collect();
    let [rtmr0, rtmr1, rtmr2, rtmr3] = EventLog::new(log.clone()).replay()?;
    let registers = Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3 };
    let quote = platform.quote(&TdReport::new(registers, [0; 48], key.report_data()))?;
    let attestation = VersionedAttestation {
        evidence: PlatformEvidence::Tdx { quote: quote.clone(), event_log: log },
        runtime_events: events,
        report_data: key.report_data(),
        config: String::new(),
    };
    let evidence = Evidence { attestation: Some(attestation.encode()?), ..Evidence::default() };
    let day = SignedDuration::from_hours(24);
    let subject = Subject::new("a machine", vec!["app.example".to_owned()], now - day, now + day);
    let certificate = key.certificate(&evidence, &subject, None)?;

    let collateral: Collateral = serde_json::from_value(serde_json::to_value(vendor.collateral(now)?)?)?;
    let source = InProcess::new(move |_| Ok::<_, CollateralError>(collateral.clone()));
    let clock = Clock::fixed(now);
    let cache =
        CollateralCache::start(CollateralSources::new().with(TrustRoot::Development, source), clock.clone())?;
    let roots = TrustRoots::vendors().with_development_root(vendor.root_der())?;
    Ok(Setting { verifier: Verifier::new(roots, cache, clock), key, certificate, quote })
}

fn plain() -> Result<(TlsAcceptor, TlsConnector), Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pair = rcgen::KeyPair::generate()?;
    let certificate: CertificateDer<'static> =
        rcgen::CertificateParams::new(vec!["app.example".to_owned()])?.self_signed(&pair)?.into();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone())?;
    let key = PrivateKeyDer::try_from(pair.serialize_der())?;
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    server.send_tls13_tickets = 0;
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.resumption = rustls::client::Resumption::disabled();
    Ok((TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client))))
}

/// Connects, shakes hands and carries one byte.
async fn plain_handshake(acceptor: &TlsAcceptor, connector: &TlsConnector) -> Result<Duration, Failure> {
    let (listener, name) = (TcpListener::bind(("127.0.0.1", 0)).await?, ServerName::try_from("app.example")?);
    let address = listener.local_addr()?;
    let start = Instant::now();
    let server = async {
        let mut stream = acceptor.accept(listener.accept().await?.0).await?;
        stream.write_all(b"!").await?;
        stream.flush().await?;
        Ok::<_, Failure>(stream)
    };
    let client = async {
        let mut stream = connector.connect(name, TcpStream::connect(address).await?).await?;
        stream.read_u8().await?;
        Ok::<_, Failure>(stream)
    };
    let _streams = tokio::try_join!(server, client)?;
    Ok(start.elapsed())
}

/// The same with evidence.
async fn attested_handshake(acceptor: &Acceptor, connector: &Connector) -> Result<Duration, Failure> {
    let (listener, name) = (TcpListener::bind(("127.0.0.1", 0)).await?, ServerName::try_from("app.example")?);
    let address = listener.local_addr()?;
    let start = Instant::now();
    let server = async {
        let mut accepted = acceptor.accept(listener.accept().await?.0).await?;
        accepted.stream.write_all(b"!").await?;
        accepted.stream.flush().await?;
        Ok::<_, Failure>(accepted)
    };
    let client = async {
        let mut connected = connector.connect(name, TcpStream::connect(address).await?).await?;
        connected.stream.read_u8().await?;
        Ok::<_, Failure>(connected)
    };
    let _streams = tokio::try_join!(server, client)?;
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64) * 1e6
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let setting = setting(Timestamp::now())?;
    let (plain_acceptor, plain_connector) = plain()?;
    let clients = Clients::Anonymous;
    let acceptor = Acceptor::new(server_config(&setting.key, &setting.certificate, &clients)?, &clients);
    let connector = || {
        let peers = PeerVerifier::new(setting.verifier.clone(), PeerPolicy::any_app(Policy::default()));
        Ok::<_, Failure>(Connector::new(client_config(&peers, None)?, &peers))
    };
    let known = connector()?;
    // Collateral, and the known peer.
    attested_handshake(&acceptor, &known).await?;

    let [mut plain, mut verification, mut attested, mut again] = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        plain.push(plain_handshake(&plain_acceptor, &plain_connector).await?);
        let (verifier, quote) = (setting.verifier.clone(), setting.quote.clone());
        verification.push(
            tokio::task::spawn_blocking(move || {
                let start = Instant::now();
                verifier.quote_blocking(&quote).map(|_| start.elapsed())
            })
            .await??,
        );
        attested.push(attested_handshake(&acceptor, &connector()?).await?);
        again.push(attested_handshake(&acceptor, &known).await?);
    }
    let [plain, verification, attested, again] = [plain, verification, attested, again].map(median);
    let ratio = attested / (plain + verification);
    println!("| Handshake over loopback, median of {ROUNDS} | µs |");
    println!("|---|---|");
    println!("| plain TLS 1.3 | {plain:.0} |");
    println!("| one verification of a quote | {verification:.0} |");
    println!("| RA-TLS, new peer | {attested:.0} |");
    println!("| RA-TLS, known peer | {again:.0} |");
    println!("RA-TLS / (plain + verification): {ratio:.2} (at most {ALLOWED})");
    if ratio > ALLOWED { Err(format!("the ratio is {ratio:.2}").into()) } else { Ok(()) }
}
