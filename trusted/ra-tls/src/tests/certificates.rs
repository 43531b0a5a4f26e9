use std::io::Write as _;

use cloister_evidence::{EventLog, report_data};
use cloister_verifier::{
    Clock, Collateral, CollateralError, CollateralSources, InProcess, Policy, TrustRoot,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use proptest::prelude::{any, prop_assert, proptest};
use rcgen::{CertificateParams, CustomExtension, KeyPair};

use super::lab::{APP, Holder, Lab, app, events, json, measured, minted, subject};
use crate::extensions::extension;
use crate::{
    AttestedKey, CarriedEvidence, CertificateIssuer, Evidence, InvalidCertificate, MAX_EVENT_LOG_BYTES,
    PeerPolicy, PeerVerifier, RaTlsError, Role, inspect, inspect_pem, oid,
};

#[test]
fn what_is_written_is_read() {
    let lab = Lab::new();
    let key = AttestedKey::generate().unwrap();
    let evidence = lab.evidence(&key, APP);
    let mut subject = subject();
    (subject.app_id, subject.usage) = (Some(app(APP)), Some("app:custom".to_owned()));
    let certificate = key.certificate(&evidence, &subject, None).unwrap();
    let read = inspect_pem(&certificate.chain_pem().concat()).unwrap();
    let (log, _) = measured(&events(APP));
    let CarriedEvidence::Tdx { quote, event_log, config } = read.evidence;
    assert_eq!((Some(quote), event_log), (evidence.quote, log));
    assert_eq!(config.as_deref(), Some(r#"{"spec_version":1}"#));
    assert_eq!(read.public_key, key.public_key());
    assert_eq!((read.app_id, read.usage.as_deref()), (Some(app(APP)), Some("app:custom")));
    assert_eq!((read.not_before, read.not_after), (subject.not_before, subject.not_after));
}

#[test]
fn each_form_of_evidence_suffices_and_a_long_log_is_compressed() {
    let lab = Lab::new();
    let key = AttestedKey::generate().unwrap();
    let all = lab.evidence(&key, APP);
    for evidence in [
        Evidence { attestation: None, ..all.clone() },
        Evidence { quote: None, event_log: String::new(), ..all.clone() },
    ] {
        let holder = Holder::with(AttestedKey::from_pem(&key.private_key_pem()).unwrap(), &evidence);
        inspect(&holder.certificate.chain()[0]).unwrap();
    }
    let mut many = events(APP);
    many.extend(
        (0..200).map(|index| cloister_evidence::RuntimeEvent::new(format!("event-{index}"), [7; 16])),
    );
    let (log, _) = measured(&many);
    let text = json(&log);
    let evidence = Evidence { event_log: text.clone(), attestation: None, ..all };
    let certificate = key.certificate(&evidence, &subject(), None).unwrap();
    assert!(certificate.chain()[0].len() < text.len(), "a log of {} bytes was not compressed", text.len());
    let CarriedEvidence::Tdx { event_log, .. } = inspect(&certificate.chain()[0]).unwrap().evidence;
    assert_eq!(event_log, log);
}

#[test]
fn what_no_peer_would_read_is_not_written() {
    let key = AttestedKey::generate().unwrap();
    let refused = key.certificate(&Evidence::default(), &subject(), None);
    assert!(matches!(refused, Err(RaTlsError::NoEvidence)));
    for (what, evidence) in [
        ("quote", Evidence { quote: Some(vec![0; 20 << 10]), ..Evidence::default() }),
        ("event log", Evidence { quote: Some(vec![0]), event_log: " ".repeat(70 << 10), attestation: None }),
        ("attestation", Evidence { attestation: Some(vec![0; 50 << 10]), ..Evidence::default() }),
    ] {
        let refused = key.certificate(&evidence, &subject(), None);
        assert!(matches!(refused, Err(RaTlsError::TooLarge { what: named, .. }) if named == what), "{what}");
    }
    let mut backwards = subject();
    std::mem::swap(&mut backwards.not_before, &mut backwards.not_after);
    let evidence = Evidence { attestation: Some(vec![0]), ..Evidence::default() };
    assert!(matches!(key.certificate(&evidence, &backwards, None), Err(RaTlsError::Dates)));
}

/// A certificate with just these extensions.
fn with_extensions(extensions: Vec<CustomExtension>) -> Vec<u8> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.custom_extensions = extensions;
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn refusal(extensions: Vec<CustomExtension>) -> String {
    super::handshakes::chain_of(&inspect(&with_extensions(extensions)).unwrap_err())
}

#[test]
fn ambiguous_and_oversized_extensions_are_refused() {
    let lab = Lab::new();
    let key = AttestedKey::generate().unwrap();
    let evidence = lab.evidence(&key, APP);
    let quote = || extension(oid::QUOTE, evidence.quote.as_ref().unwrap());
    let log = |text: &str| extension(oid::EVENT_LOG, text.as_bytes());
    let attestation = || extension(oid::ATTESTATION, evidence.attestation.as_ref().unwrap());
    let other = lab.evidence(&key, APP + 1);

    assert!(refusal(vec![]).contains("carries no evidence"));
    assert!(
        refusal(vec![quote(), quote(), log(&evidence.event_log)])
            .contains("quote is malformed, too long or there twice")
    );
    assert!(refusal(vec![attestation(), attestation()]).contains("there twice"));
    assert!(refusal(vec![quote()]).contains("belong together"));
    assert!(refusal(vec![log(&evidence.event_log)]).contains("belong together"));
    // Both forms, and they differ in the quote or in the log.
    assert!(refusal(vec![attestation(), quote(), log(&other.event_log)]).contains("contradict"));
    let other_quote = extension(oid::QUOTE, other.quote.as_ref().unwrap());
    assert!(refusal(vec![attestation(), other_quote, log(&evidence.event_log)]).contains("contradict"));
    inspect(&with_extensions(vec![attestation(), quote(), log(&evidence.event_log)])).unwrap();

    // Content without its own octet string, and with something behind it.
    let bare = CustomExtension::from_oid_content(oid::ATTESTATION, evidence.attestation.clone().unwrap());
    assert!(refusal(vec![bare]).contains("attestation is malformed"));
    let mut trailing =
        yasna::construct_der(|writer| writer.write_bytes(evidence.attestation.as_ref().unwrap()));
    trailing.push(0);
    let trailing = CustomExtension::from_oid_content(oid::ATTESTATION, trailing);
    assert!(refusal(vec![trailing]).contains("attestation is malformed"));
    let mut followed = evidence.attestation.clone().unwrap();
    followed.push(0);
    assert!(refusal(vec![extension(oid::ATTESTATION, &followed)]).contains("versioned attestation"));

    assert!(refusal(vec![attestation(), extension(oid::APP_ID, &[1; 19])]).contains("application id"));
    assert!(refusal(vec![attestation(), extension(oid::USAGE, &[0xFF; 3])]).contains("usage"));
    assert!(refusal(vec![extension(oid::QUOTE, &[0; 17 << 10]), log("[]")]).contains("quote is too long"));
    assert!(refusal(vec![quote(), log(&" ".repeat(65 << 10 >> 1).repeat(2))]).len() > 1);
}

#[test]
fn a_log_that_inflates_without_end_is_refused() {
    let bomb = |length: usize| {
        let mut encoder = GzEncoder::new(b"ELGZv1".to_vec(), Compression::best());
        encoder.write_all(b"[]").unwrap();
        encoder.write_all(&vec![b' '; length - 2]).unwrap();
        encoder.finish().unwrap()
    };
    let with = |packed: &[u8]| vec![extension(oid::QUOTE, &[1]), extension(oid::EVENT_LOG, packed)];
    let fits = inspect(&with_extensions(with(&bomb(MAX_EVENT_LOG_BYTES)))).unwrap();
    assert_eq!(
        fits.evidence,
        CarriedEvidence::Tdx { quote: vec![1], event_log: EventLog::default(), config: None }
    );
    for length in [MAX_EVENT_LOG_BYTES + 1, 16 << 20] {
        assert!(refusal(with(&bomb(length))).contains("event log is too long"), "{length}");
    }
    let mut damaged = bomb(100);
    damaged.truncate(damaged.len() - 9);
    assert!(refusal(with(&damaged)).contains("damaged"));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(inspect(&bytes).is_err());
        let in_extension = with_extensions(vec![extension(oid::ATTESTATION, &bytes)]);
        prop_assert!(inspect(&in_extension).is_err());
        let log = [b"ELGZv1".as_slice(), &bytes].concat();
        let packed = with_extensions(vec![extension(oid::QUOTE, &bytes), extension(oid::EVENT_LOG, &log)]);
        prop_assert!(inspect(&packed).is_err());
    }
}

#[test]
fn a_truncated_certificate_is_refused_at_every_length() {
    let holder = Lab::new().holder(APP);
    let der = holder.certificate.chain()[0].clone();
    for length in 0..der.len() {
        assert!(matches!(inspect(&der[..length]), Err(InvalidCertificate::Malformed)), "{length}");
    }
    assert!(inspect(&[&der, [0].as_slice()].concat()).is_err());
}

/// The published time of the minted collateral.
fn minted_time() -> Timestamp {
    Timestamp::from_second(1_795_000_000).unwrap()
}

fn minted_verifier(folder: &std::path::Path) -> cloister_verifier::Verifier {
    let collateral: Collateral =
        serde_json::from_slice(&std::fs::read(folder.join("collateral_uptodate.json")).unwrap()).unwrap();
    let source = InProcess::new(move |_| Ok::<_, CollateralError>(collateral.clone()));
    let clock = Clock::fixed(minted_time());
    let cache = cloister_verifier::CollateralCache::start(
        CollateralSources::new().with(TrustRoot::Development, source),
        clock.clone(),
    )
    .unwrap();
    let root = std::fs::read(folder.join("root_ca.der")).unwrap();
    let roots = cloister_verifier::TrustRoots::vendors().with_development_root(root).unwrap();
    cloister_verifier::Verifier::new(roots, cache, clock)
}

#[test]
fn certificates_of_public_peers_are_read_and_verified() {
    let Some(folder) = minted() else { return };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let temporary_ca = read("ratls_temp_ca.pem");
    let verifier = minted_verifier(&folder);
    let log = EventLog::parse(&read("event_log.json")).unwrap();
    for name in ["ratls_legacy_ext.pem", "ratls_versioned_ext.pem"] {
        let pem = read(name);
        let read = inspect_pem(&pem).unwrap();
        let CarriedEvidence::Tdx { quote, event_log, config } = &read.evidence;
        assert_eq!(event_log.replay().unwrap(), log.replay().unwrap(), "{name}");
        assert_eq!(config.is_some(), name.contains("versioned"));
        let parsed = cloister_evidence::Quote::parse(quote).unwrap();
        assert_eq!(*parsed.report_data(), report_data::of_tls_key(&read.public_key), "{name}");

        let chain = crate::AttestedCertificate::from_pem_chain(&(pem.clone() + &temporary_ca)).unwrap();
        let peers = PeerVerifier::new(verifier.clone(), PeerPolicy::any_app(Policy::default()));
        let peer = peers.chain(chain.chain(), Role::Client).unwrap();
        assert_eq!(peer.app.app_id.unwrap().to_string(), "6f809b3214eb9a69571ad008289d9551fa9a4272");
        assert_eq!(
            hex::encode(peer.device_id),
            "a309e617409dfb6766860e295eee46054c784bbbb92aa27091414c6654f57d0d"
        );
        // Without its issuer nothing says that the certificate is whole.
        let alone = crate::AttestedCertificate::from_pem_chain(&pem).unwrap();
        peers.chain(alone.chain(), Role::Client).unwrap_err();
    }
}

#[test]
fn an_authority_can_sign_attested_certificates() {
    let lab = Lab::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = CertificateIssuer::from_pem(&authority.pem(), &authority_key.serialize_pem()).unwrap();
    let key = AttestedKey::generate().unwrap();
    let certificate = key.certificate(&lab.evidence(&key, APP), &subject(), Some(&issuer)).unwrap();
    assert_eq!(certificate.chain().len(), 2);
    let with = |issuers| {
        let mut policy = PeerPolicy::any_app(Policy::default());
        policy.issuers = issuers;
        PeerVerifier::new(lab.verifier(), policy)
    };
    with(crate::Issuers::Any).chain(certificate.chain(), Role::Server).unwrap();
    let only = crate::Issuers::Only(vec![authority.der().clone()]);
    with(only.clone()).chain(&certificate.chain()[..1], Role::Server).unwrap();
    // A certificate that signed itself, where a certain issuer's claims count.
    with(only).chain(lab.holder(APP).certificate.chain(), Role::Server).unwrap_err();
}
