use std::convert::Infallible;
use std::path::{Path, PathBuf};

use cloister_app_compose::{AppId, InstanceId};
use cloister_kms_api::statements::{
    self, K256Public, StatementError, verify_app_key, verify_env_key, verify_env_key_at, verify_key_chain,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::{Algorithm, AppKey, GenerateError, RootSecrets, hierarchy, verify};

/// Ids of the platform reference, section 2.4.
const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
const INSTANCE: &str = "836a333a23811140f86b94c3c8a7cb0deef0a6d5";

fn app() -> AppId {
    APP.parse().unwrap()
}

fn instance() -> InstanceId {
    INSTANCE.parse().unwrap()
}

fn root() -> RootSecrets {
    RootSecrets::from_bytes(&[1; 32], &[2; 32]).unwrap()
}

fn app_key() -> AppKey {
    root().app_key(&app()).unwrap()
}

#[test]
fn the_hierarchy_is_that_of_the_platform() {
    let (root, app) = (root(), app());
    assert_eq!(
        hex::encode(root.ca_public_key_der()),
        "3059301306072a8648ce3d020106082a8648ce3d030107034200046ff03b949241ce1dadd43519e6960e0a85b41a69a05c328103aa2bce1594ca163c4f753a55bf01dc53f6c0b0c7eee78b40c6ff7d25a96e2282b989cef71c144a"
    );
    assert_eq!(
        hex::encode(root.k256_public()),
        "024d4b6cd1361032ca9bd2aeb9d900aa4d45d9ead80ac9423374c451a7254d0766"
    );
    assert_eq!(
        hex::encode(*root.disk_key(&app, Some(&instance())).unwrap()),
        "435ecb193c532452b0d7430aabf5937bb5cfe8e2eb7ce49b535e882b1e98baaf"
    );
    assert_eq!(
        hex::encode(*root.env_key(&app).unwrap()),
        "dcd635b698cfd91e829f55b08ba733bbe7db49f4b76bec023dd1b4d5a6ca8158"
    );
    assert_eq!(
        hex::encode(root.env_public_key(&app).unwrap()),
        "37b1015eaf9a2746b9f2d34a7ed828d3ba8679c78db4162619633a5c4cbf5c5e"
    );
    let app_ca = root.app_ca_key(&app).unwrap();
    assert_eq!(app_ca.len(), 138);
    assert_eq!(
        hex::encode(&app_ca[36..68]),
        "6b3dfe9f8a40948e9164c96335f1ec5305f388577207417eaad7cd50f741d254"
    );
    let key = root.app_key(&app).unwrap();
    assert_eq!(hex::encode(key.secret()), "f9d7bfba8b8c1e076c38317145a9287c196d3e840f8744dc643e577e64344711");
    assert_eq!(
        hex::encode(key.public_key()),
        "033c2f1784dab553a2014ec422a3ea1c8c5a2670c2d8891138e110362db79fc03d"
    );
}

#[test]
fn the_root_signs_what_published_clients_verify() {
    let (root, app) = (root(), app());
    let public = root.env_public_key(&app).unwrap();
    let app_signature = root.sign_app_key(&app).unwrap();
    let forever = root.sign_env_public_key(&app, &public, None);
    let timed = root.sign_env_public_key(&app, &public, Some(1_760_000_000));
    assert_eq!(
        hex::encode(app_signature),
        "00d1a678c71a920e41d53a5e673e5a2c686a34a36612231f30139fe5cc871f7c1351e396549e753bb9a46a37432ad170fb021ce8fca81f5bb095ad32139518c001"
    );
    assert_eq!(
        hex::encode(forever),
        "01b79093b50ef415155c5939a53ef66fee82d901812855a7e746a96b0bab695545e7367173c2bd8985ea8087898fe6f8fe7b33c13f397665cf00a6a19b443c4e01"
    );
    assert_eq!(
        hex::encode(timed),
        "74aea2e21e9343a9f9a418160787645e92414ba1a34893b8d45c76a7a31a290c579a75b18ed01abd67070bdad17528e39eaff6b2fb2435910d4f520281a1ba8b01"
    );
    let signer = root.k256_public();
    let app_public = root.app_key(&app).unwrap().public_key();
    assert_eq!(verify_app_key(&app, &app_public, &app_signature, &signer), Ok(()));
    assert_eq!(verify_env_key(&app, &public, &forever, &signer), Ok(()));
    assert_eq!(verify_env_key_at(&app, &public, 1_760_000_000, &timed, 1_760_000_000, &signer), Ok(()));
}

#[test]
fn an_applications_keys_are_those_of_the_platform() {
    let key = app_key();
    let derived = key.derive("storage/main");
    assert_eq!(
        hex::encode(derived.as_bytes()),
        "12471a991e8a8f0d20524e90126f1a310f7cb4ee2979185967e0c147e751c5ff"
    );
    let named = root().named_key(&app(), "storage/main");
    assert_eq!(named.as_slice(), derived.as_bytes());
    for (algorithm, public, chain) in [
        (
            Algorithm::Secp256k1,
            "024d8e26fe14a9f22c6357d12b2408ec20f71f606461034afb0fd8ef853a5e4928",
            "019f199500fc1dd46d64937f0f17cc019fa5371618199a671530768beee54dc2567c941d517ccfa0909d1cb4cd2edefdef9984bc912986b94155217c67dd4df000",
        ),
        (
            Algorithm::Ed25519,
            "1357b4c803ee5c4b97b36c121e64272bfa538ffbf10001d63118f07554b66596",
            "a1a9f1956cd1a80c254f1f63192284c8649a0f3f91a3500df80a76d6199b14d577b836b30a90b3300a845e20bfd4e99d587e379478dddf54680066aefe84438d00",
        ),
    ] {
        let derived_public = derived.public_key(algorithm).unwrap();
        assert_eq!(hex::encode(&derived_public), public);
        let by_app = key.chain("signing", &derived_public);
        assert_eq!(hex::encode(by_app), chain);
        let whole = [by_app, root().sign_app_key(&app()).unwrap()];
        let trusted = root().k256_public();
        let found = verify_key_chain(&app(), "signing", &derived_public, &whole, &trusted).unwrap();
        assert_eq!(found, key.public_key());
    }
}

#[test]
fn a_chain_holds_for_its_application_purpose_key_and_root_only() {
    let key = app_key();
    let public = key.derive("p").public_key(Algorithm::Secp256k1).unwrap();
    let chain = [key.chain("signing", &public), root().sign_app_key(&app()).unwrap()];
    let trusted = root().k256_public();
    let check = |app: &AppId, purpose: &str, public: &[u8], trusted: &K256Public| {
        verify_key_chain(app, purpose, public, &chain, trusted)
    };
    assert!(check(&app(), "signing", &public, &trusted).is_ok());
    assert!(check(&AppId::from_bytes([7; 20]), "signing", &public, &trusted).is_err());
    assert!(check(&app(), "encrypting", &public, &trusted).is_err());
    assert!(
        check(&app(), "signing", &key.derive("q").public_key(Algorithm::Secp256k1).unwrap(), &trusted)
            .is_err()
    );
    assert!(check(&app(), "signing", &public, &key.public_key()).is_err());
    assert_eq!(
        verify_key_chain(&app(), "signing", &public, &chain[..1], &trusted),
        Err(StatementError::ChainLength(1))
    );
    for at in 0..65 {
        for which in 0..2 {
            let mut changed = chain;
            changed[which][at] ^= 1;
            assert!(
                verify_key_chain(&app(), "signing", &public, &changed, &trusted).is_err(),
                "{which} {at}"
            );
        }
    }
}

#[test]
fn a_successor_is_signed_by_its_predecessor() {
    let next = RootSecrets::from_bytes(&[3; 32], &[4; 32]).unwrap();
    let signature = root().sign_successor(2, next.public());
    let digest = statements::successor_digest(2, next.ca_public_key_der(), &next.k256_public());
    assert_eq!(statements::verify(&digest, &signature, &root().k256_public()), Ok(()));
    let other = statements::successor_digest(3, next.ca_public_key_der(), &next.k256_public());
    assert!(statements::verify(&other, &signature, &root().k256_public()).is_err());
}

#[test]
fn signatures_verify_and_nothing_else_does() {
    let key = app_key().derive("vms");
    let data = [5; 32];
    for algorithm in [Algorithm::Secp256k1, Algorithm::Secp256k1Prehashed, Algorithm::Ed25519] {
        let public = key.public_key(algorithm).unwrap();
        let signature = key.sign(algorithm, &data).unwrap();
        assert_eq!(signature.len(), 64);
        assert_eq!(verify(algorithm, &data, &signature, &public), Ok(true));
        assert_eq!(verify(algorithm, &[6; 32], &signature, &public), Ok(false));
        assert_eq!(verify(algorithm, &data, &signature[1..], &public), Ok(false));
        assert_eq!(verify(algorithm, &data, &[], &public), Ok(false));
        assert_eq!(verify(algorithm, &data, &[0; 64], &public), Ok(false));
        assert!(verify(algorithm, &data, &signature, &public[1..]).is_err());
        assert!(verify(algorithm, &data, &signature, &[]).is_err());
        for at in 0..64 {
            let mut changed = signature.clone();
            changed[at] ^= 1;
            assert_eq!(verify(algorithm, &data, &changed, &public), Ok(false), "{algorithm:?} {at}");
        }
    }
    assert!(key.sign(Algorithm::Secp256k1Prehashed, &[0; 31]).is_err());
    assert!(
        verify(
            Algorithm::Secp256k1Prehashed,
            &[0; 33],
            &[0; 64],
            &key.public_key(Algorithm::Secp256k1).unwrap()
        )
        .is_err()
    );
    // Who prehashes with SHA-256 signs the same.
    let digest: [u8; 32] =
        sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(b"text")).into();
    assert_eq!(key.sign(Algorithm::Secp256k1Prehashed, &digest), key.sign(Algorithm::Secp256k1, b"text"));
    for name in ["k256", "secp256k1", "ed25519", "secp256k1_prehashed"] {
        assert!(name.parse::<Algorithm>().is_ok());
    }
    let unknown = "rsa".repeat(40).parse::<Algorithm>().unwrap_err().to_string();
    assert_eq!(unknown, format!("Unsupported algorithm: {}", &"rsa".repeat(40)[..32]));
}

#[test]
fn secrets_that_are_no_scalars_are_refused() {
    for bytes in [[0; 32], [0xFF; 32]] {
        assert!(AppKey::from_bytes(&bytes).is_err());
        assert!(RootSecrets::from_bytes(&bytes, &[1; 32]).is_err());
        assert!(RootSecrets::from_bytes(&[1; 32], &bytes).is_err());
    }
}

#[test]
fn a_new_root_needs_good_randomness() {
    let mut counter = 0;
    let root = RootSecrets::generate(&mut |to: &mut [u8]| {
        counter += 1;
        to.fill(if counter < 3 { 0xFF } else { counter });
        Ok::<_, Infallible>(())
    });
    let root = root.unwrap();
    assert_eq!((*root.ca_scalar(), *root.k256_secret()), ([3; 32], [4; 32]));
    let stuck = RootSecrets::generate(&mut |_: &mut [u8]| Ok::<_, Infallible>(()));
    assert!(matches!(stuck, Err(GenerateError::NotRandom(_))));
    let broken = RootSecrets::generate(&mut |_: &mut [u8]| Err("broken"));
    assert!(matches!(broken, Err(GenerateError::Randomness("broken"))));
}

#[test]
fn secrets_are_not_shown() {
    let (root, key) = (root(), app_key());
    let shown = format!("{root:?} {key:?} {:?}", key.derive("p"));
    for secret in [root.ca_scalar(), root.k256_secret(), key.secret(), key.derive("p").as_bytes()] {
        assert!(!shown.contains(&hex::encode(secret)) && !shown.contains(&format!("{secret:?}")));
    }
}

/// The published vectors; `None`, said loudly, where they are not.
fn vectors() -> Option<Value> {
    let given = std::env::var_os("CLOISTER_TESTDATA").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testdata");
    let file = given.unwrap_or_else(beside).join("tdx/minted/vectors.json");
    if let Ok(text) = std::fs::read(&file) {
        return Some(serde_json::from_slice(&text).unwrap());
    }
    eprintln!("SKIPPED: no test data at {}; name it by CLOISTER_TESTDATA", file.display());
    None
}

#[test]
fn agrees_with_the_published_vectors() {
    let Some(vectors) = vectors() else { return };
    let bytes = |path: &str| hex::decode(vectors.pointer(path).unwrap().as_str().unwrap()).unwrap();
    let array = |path: &str| <[u8; 32]>::try_from(bytes(path)).unwrap();

    let root = RootSecrets::from_bytes(&array("/kms/root_ca_p256_scalar"), &array("/kms/root_k256")).unwrap();
    let app = AppId::from_bytes(bytes("/compose/app_id").try_into().unwrap());
    let instance = InstanceId::from_bytes(bytes("/compose/instance_id").try_into().unwrap());
    assert_eq!(root.ca_public_key_der(), bytes("/kms/root_ca_spki_der"));
    assert_eq!(root.k256_public().to_vec(), bytes("/kms/root_k256_pub"));
    let disk_context: [&[u8]; 3] = [app.as_bytes(), instance.as_bytes(), b"app-disk-crypt-key"];
    assert_eq!(*hierarchy::derive(root.ca_scalar(), &disk_context), array("/kms/disk_p256_scalar"));
    let disk = hierarchy::derive_p256(root.ca_scalar(), &disk_context).unwrap();
    assert_eq!(*hierarchy::pkcs8(&disk).unwrap(), bytes("/kms/disk_pkcs8_der"));
    assert_eq!(*root.disk_key(&app, Some(&instance)).unwrap(), array("/kms/disk_crypt_key"));
    assert_eq!(*root.env_key(&app).unwrap(), array("/kms/env_crypt_key"));
    let env_public = root.env_public_key(&app).unwrap();
    assert_eq!(env_public, array("/kms/env_public_key"));
    assert_eq!(root.app_ca_key(&app).unwrap()[36..68], array("/kms/app_ca_p256_scalar"));
    let key = root.app_key(&app).unwrap();
    assert_eq!(*key.secret(), array("/kms/app_k256_key"));
    assert_eq!(key.public_key().to_vec(), bytes("/kms/app_k256_pub"));
    assert_eq!(root.sign_app_key(&app).unwrap().to_vec(), bytes("/kms/k256_signature"));
    let timestamp = vectors["kms"]["env_pubkey_timestamp"].as_u64().unwrap();
    assert_eq!(
        root.sign_env_public_key(&app, &env_public, None).to_vec(),
        bytes("/kms/env_pubkey_signature_legacy")
    );
    assert_eq!(
        root.sign_env_public_key(&app, &env_public, Some(timestamp)).to_vec(),
        bytes("/kms/env_pubkey_signature_v1")
    );
    assert_eq!(
        statements::bootstrap_report_data(root.ca_public_key_der(), &root.k256_public()).to_vec(),
        bytes("/kms/bootstrap_report_data")
    );
    let derived = key.derive(vectors["get_key"]["path"].as_str().unwrap());
    assert_eq!(*derived.as_bytes(), array("/get_key/key"));

    // A root of the public implementation's own tests.
    let upstream = bytes("/upstream_checks/derive_dh_secret/root_pkcs8_der");
    let scalar = <[u8; 32]>::try_from(&upstream[36..68]).unwrap();
    let secret = hierarchy::derive_through_p256(&scalar, &[b"context one", b"context two"]).unwrap();
    assert_eq!(*secret, array("/upstream_checks/derive_dh_secret/secret"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn keys_of_different_owners_never_meet(ca in 1u8..0xFF, k256 in 1u8..0xFF, one: [u8; 20], other: [u8; 20], name: String) {
        prop_assume!(one != other);
        let root = RootSecrets::from_bytes(&[ca; 32], &[k256; 32]).unwrap();
        let (a, b) = (AppId::from_bytes(one), AppId::from_bytes(other));
        let (i, j) = (InstanceId::from_bytes(one), InstanceId::from_bytes(other));
        let keys = [
            *root.disk_key(&a, Some(&i)).unwrap(),
            *root.disk_key(&a, Some(&j)).unwrap(),
            *root.disk_key(&b, Some(&i)).unwrap(),
            *root.disk_key(&a, None).unwrap(),
            *root.env_key(&a).unwrap(),
            *root.env_key(&b).unwrap(),
            *root.named_key(&a, &name),
            *root.named_key(&b, &name),
            *root.app_key(&a).unwrap().secret(),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        prop_assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn what_is_derived_signs(secret in 1u8..0xFF, path: String, data: Vec<u8>) {
        let key = AppKey::from_bytes(&[secret; 32]).unwrap().derive(&path);
        for algorithm in [Algorithm::Secp256k1, Algorithm::Ed25519] {
            let signature = key.sign(algorithm, &data).unwrap();
            let public = key.public_key(algorithm).unwrap();
            prop_assert_eq!(verify(algorithm, &data, &signature, &public), Ok(true));
        }
    }
}
