use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloister_kms_api::{AppKeyResponse, KmsErrorCode, SignCertResponse};
use cloister_ra_tls::CertificateRequest;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::kms::{Lab, PATIENCE, PlayedKms, Reply, Roots, Seen, dead, now, ok, refusal};
use crate::attestation::testing::{self, APP_COMPOSE_OF_KMS, VM_CONFIG};
use crate::attestation::{KeyProviderInfo, Keys, TlsKeyRequest};
use crate::failure;
use crate::keys::{KmsClient, KmsFailure, Release};

const BOOT_EVENTS: [&str; 5] = ["system-preparing", "app-id", "compose-hash", "instance-id", "boot-mr-done"];

/// A guest on the lab's platform that was told these addresses.
async fn client(lab: &Lab, urls: &[String], pinned: Option<Vec<u8>>) -> KmsClient {
    let (measuring, facts) = testing::booting(APP_COMPOSE_OF_KMS, lab.attester()).await.unwrap();
    KmsClient::new(urls, pinned, measuring.prover(&facts), now).unwrap()
}

async fn keys(client: &mut KmsClient) -> Result<Release, KmsFailure> {
    client.app_keys(PATIENCE, |_| ()).await
}

/// Answers the keys of `roots`.
fn releasing(roots: &Roots) -> impl FnMut(&Seen) -> Reply + Send + 'static {
    let answer = roots.answer();
    move |_| ok(&answer)
}

#[tokio::test]
async fn keys_are_given_to_a_boot_that_proves_itself() {
    let (lab, roots) = (Lab::new(), Roots::new(2));
    let kms = PlayedKms::start(&lab, &roots, releasing(&roots)).await;
    let mut client = client(&lab, &[kms.url()], None).await;
    let Release { keys, os_image_hash, root } = keys(&mut client).await.unwrap();
    assert_eq!((keys.current().root_version(), keys.former().len()), (2, 1));
    assert_eq!((os_image_hash, root), ([0xE6; 32], roots.key(2)));
    let [seen] = kms.seen().try_into().unwrap();
    assert_eq!(seen.method, "/prpc/KMS.GetAppKey?json");
    assert_eq!(seen.body["vm_config"], VM_CONFIG);
    assert_eq!(seen.events.unwrap(), BOOT_EVENTS);
}

#[tokio::test]
async fn a_refusal_is_final_and_in_the_words_of_the_kms() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let mut told = Vec::new();
    for (code, words) in [
        (KmsErrorCode::Unauthorized, "the evidence is for another key"),
        (KmsErrorCode::MeasurementNotFound, "nobody allowed this compose document\u{7}"),
        (KmsErrorCode::KeyNotFound, "no such key"),
    ] {
        let kms = PlayedKms::start(&lab, &roots, move |_| refusal(code, words)).await;
        let never = PlayedKms::start(&lab, &roots, releasing(&roots)).await;
        let mut client = client(&lab, &[kms.url(), never.url()], None).await;
        let error = keys(&mut client).await.unwrap_err();
        assert_eq!((kms.seen().len(), never.seen().len()), (1, 0));
        told.push(failure::chain(&error).replace(&kms.url(), "https://kms"));
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[tokio::test]
async fn what_may_pass_is_waited_for_and_told() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let other = Roots::new(1).answer();
    let mut replies = vec![
        ok(&roots.answer()),
        // The root changed between the handshake and the answer.
        ok(&other),
        (502, b"<html>".to_vec()),
        refusal(KmsErrorCode::TooManyRequests, "slowly"),
        refusal(KmsErrorCode::InternalError, "the authority does not answer"),
    ];
    let kms = PlayedKms::start(&lab, &roots, move |_| replies.pop().unwrap()).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut client = client(&lab, &[kms.url()], None).await;
    let telling = Arc::clone(&told);
    let waiting = move |text: &str| telling.lock().unwrap().push(text.to_owned());
    client.app_keys(PATIENCE, waiting).await.unwrap();
    let told = told.lock().unwrap().join("\n").replace(&kms.url(), "https://kms");
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn patience_ends() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let kms = PlayedKms::start(&lab, &roots, |_| refusal(KmsErrorCode::InternalError, "not now")).await;
    let mut client = client(&lab, &[kms.url()], None).await;
    let error = client.app_keys(Duration::from_secs(3), |_| ()).await.unwrap_err();
    assert!(matches!(error, KmsFailure::Patience { .. }), "{error}");
    assert!(failure::chain(&error).ends_with("not now"), "{}", failure::chain(&error));
    assert!(kms.seen().len() >= 2);
}

#[tokio::test]
async fn the_next_address_is_asked_when_one_is_dead_or_will_not_do() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let imposter = PlayedKms::start_for(&lab, &roots, "app:custom", releasing(&roots)).await;
    let confused = PlayedKms::start(&lab, &roots, |_| (200, b"{}".to_vec())).await;
    let kms = PlayedKms::start(&lab, &roots, releasing(&roots)).await;
    let urls = [dead().await, imposter.url(), confused.url(), kms.url()];
    let mut all = client(&lab, &urls, None).await;
    keys(&mut all).await.unwrap();
    assert_eq!((imposter.seen().len(), confused.seen().len(), kms.seen().len()), (0, 1, 1));

    // Of those that will never do nobody waits for anything.
    let mut useless = client(&lab, &[imposter.url(), confused.url()], None).await;
    assert!(matches!(keys(&mut useless).await, Err(KmsFailure::Final { .. })));
    let mut imposter = client(&lab, &[imposter.url()], None).await;
    let error = failure::chain(&keys(&mut imposter).await.unwrap_err());
    assert!(error.contains("the server's certificate is not for kms:rpc"), "{error}");
}

#[tokio::test]
async fn a_silent_kms_does_not_use_up_the_time_of_the_others() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("https://{}", silent.local_addr().unwrap());
    let kms = PlayedKms::start(&lab, &roots, releasing(&roots)).await;
    let patience = Duration::from_secs(4);
    let mut both = client(&lab, &[silent_url.clone(), kms.url()], None).await;
    both.app_keys(patience, |_| ()).await.unwrap();
    let mut alone = client(&lab, &[silent_url], None).await;
    let began = Instant::now();
    let error = alone.app_keys(Duration::from_millis(100), |_| ()).await.unwrap_err();
    assert!(failure::chain(&error).ends_with("the KMS did not answer in time"), "{error}");
    assert!(began.elapsed() < patience, "it was waited for longer than there was patience");
}

/// It would be measured as it is.
#[tokio::test]
async fn the_hash_of_an_image_has_the_length_of_one() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let answer = AppKeyResponse { os_image_hash: vec![0xE6; 33].into(), ..roots.answer() };
    let kms = PlayedKms::start(&lab, &roots, move |_| ok(&answer)).await;
    let mut client = client(&lab, &[kms.url()], None).await;
    let error = failure::chain(&keys(&mut client).await.unwrap_err());
    assert!(error.contains("hash of the image of a wrong length"), "{error}");
}

#[tokio::test]
async fn an_endless_answer_is_cut() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let kms = PlayedKms::start(&lab, &roots, |_| (200, vec![b' '; 1 << 20])).await;
    let mut client = client(&lab, &[kms.url()], None).await;
    let error = failure::chain(&keys(&mut client).await.unwrap_err());
    assert!(error.contains("longer than 524288 bytes"), "{error}");
}

#[tokio::test]
async fn a_pinned_root_may_be_any_in_the_chain_and_no_other() {
    let (lab, roots) = (Lab::new(), Roots::new(3));
    let kms = PlayedKms::start(&lab, &roots, releasing(&roots)).await;
    for version in 1..=3 {
        let mut client = client(&lab, &[kms.url()], Some(roots.key(version))).await;
        assert_eq!(keys(&mut client).await.unwrap().root, roots.key(3));
    }
    let mut client = client(&lab, &[kms.url()], Some(Roots::new(1).key(1))).await;
    let error = failure::chain(&keys(&mut client).await.unwrap_err());
    assert!(error.contains("no authority of the server's chain has the key that is expected"), "{error}");
    assert_eq!(kms.seen().len(), 3);
}

#[test]
fn a_document_that_wants_keys_needs_a_kms() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lab = Lab::new();
        let (measuring, facts) = testing::booting(APP_COMPOSE_OF_KMS, lab.attester()).await.unwrap();
        for urls in [vec![], vec!["http://10.0.2.2:12001".to_owned()]] {
            let refused = KmsClient::new(&urls, None, measuring.prover(&facts), now).unwrap_err();
            assert!(matches!(refused, KmsFailure::NoKms | KmsFailure::Endpoint(_)), "{refused}");
        }
    });
}

/// A guest that has got its keys, as it is when its application runs.
async fn booted(lab: &Lab, kms: &PlayedKms) -> (Arc<crate::attestation::Attestation>, KmsClient) {
    let (measuring, facts) = testing::booting(APP_COMPOSE_OF_KMS, lab.attester()).await.unwrap();
    let mut client = KmsClient::new(&[kms.url()], None, measuring.prover(&facts), now).unwrap();
    let Release { keys, os_image_hash, root } = client.app_keys(PATIENCE, |_| ()).await.unwrap();
    let provider = KeyProviderInfo::kms(&root);
    measuring.keys(&provider, Some(&os_image_hash)).await.unwrap();
    let keys = Keys { app: keys, provider, signer: Box::new(client.clone()) };
    (measuring.finish(facts, Some(keys)).await.unwrap(), client)
}

#[tokio::test]
async fn a_running_guest_has_certificates_signed_and_confirms_what_it_sealed_again() {
    let (lab, roots) = (Lab::new(), Roots::new(2));
    let answer = roots.answer();
    let kms = PlayedKms::start(&lab, &roots, move |seen| match seen.method.as_str() {
        "/prpc/KMS.SignCert?json" => ok(&SignCertResponse { certificate_chain: vec!["leaf".to_owned()] }),
        "/prpc/KMS.ConfirmReseal?json" => (200, b"{}".to_vec()),
        _ => ok(&answer),
    })
    .await;
    let (attestation, client) = booted(&lab, &kms).await;
    client.confirm_reseal(2, PATIENCE).await.unwrap();
    let key = cloister_ra_tls::AttestedKey::generate().unwrap();
    let request = TlsKeyRequest { subject: "web".to_owned(), attested: true, ..TlsKeyRequest::default() };
    let chain = attestation.tls_certificate(&key, &request, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(chain, ["leaf"]);

    let seen = kms.seen();
    let [_, confirmed, signed] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(
        (confirmed.body["root_version"].as_u64(), signed.body["api_version"].as_u64()),
        (Some(2), Some(2))
    );
    let bytes = |member: &str| hex::decode(signed.body[member].as_str().unwrap()).unwrap();
    let request = CertificateRequest::decode(&bytes("csr"), &bytes("signature")).unwrap();
    assert_eq!(request.public_key(), key.public_key());
    assert!(request.certificate().with_evidence);
    // From the release on the log tells who gave the keys.
    let mut order = BOOT_EVENTS.to_vec();
    order.extend(["os-image-hash", "key-provider", "storage-fs", "system-ready"]);
    assert_eq!(signed.events.as_ref().unwrap(), &order);
    let info = attestation.info(false).await;
    let provider = format!(r#"{{"name":"kms","id":"{}"}}"#, hex::encode(roots.key(2)));
    assert_eq!(info["key_provider_info"], provider);
}

#[tokio::test]
async fn a_running_guest_talks_to_no_kms_with_another_root() {
    let (lab, roots) = (Lab::new(), Roots::new(1));
    let kms = PlayedKms::start(&lab, &roots, releasing(&roots)).await;
    let mut client = client(&lab, &[kms.url()], None).await;
    keys(&mut client).await.unwrap();
    let other = PlayedKms::start(&lab, &Roots::new(1), |_| (200, b"{}".to_vec())).await;
    client.readdress(&[other.url()]);
    assert!(matches!(client.confirm_reseal(1, PATIENCE).await, Err(KmsFailure::Final { .. })));
    assert!(other.seen().is_empty());
}
