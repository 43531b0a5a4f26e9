use k256::ecdsa::SigningKey;
use proptest::prelude::*;

use super::*;
use crate::Hex;

/// The worked vector of the platform reference, section 3.
const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
const ENV_PUBLIC: &str = "37b1015eaf9a2746b9f2d34a7ed828d3ba8679c78db4162619633a5c4cbf5c5e";
const ROOT: &str = "024d4b6cd1361032ca9bd2aeb9d900aa4d45d9ead80ac9423374c451a7254d0766";
const FOREVER: &str = "01b79093b50ef415155c5939a53ef66fee82d901812855a7e746a96b0bab695545e7367173c2bd8985ea8087898fe6f8fe7b33c13f397665cf00a6a19b443c4e01";
const TIMED: &str = "74aea2e21e9343a9f9a418160787645e92414ba1a34893b8d45c76a7a31a290c579a75b18ed01abd67070bdad17528e39eaff6b2fb2435910d4f520281a1ba8b01";
const TIME: u64 = 1_760_000_000;

fn app() -> AppId {
    APP.parse().unwrap()
}

fn array<const N: usize>(text: &str) -> [u8; N] {
    hex::decode(text).unwrap().try_into().unwrap()
}

fn signer(secret: u8) -> (SigningKey, K256Public) {
    let key = SigningKey::from_slice(&[secret; 32]).unwrap();
    let public = key.verifying_key().to_sec1_point(true).as_bytes().try_into().unwrap();
    (key, public)
}

fn sign(key: &SigningKey, digest: &StatementDigest) -> Vec<u8> {
    let (signature, recovery_id) = key.sign_prehash_recoverable(digest);
    [&signature.to_bytes()[..], &[recovery_id.to_byte()]].concat()
}

fn answer() -> EnvPublicKeyResponse {
    EnvPublicKeyResponse {
        public_key: array::<32>(ENV_PUBLIC).into(),
        signature: array::<65>(FOREVER).into(),
        timestamp: TIME,
        signature_v1: array::<65>(TIMED).into(),
        root_version: 1,
    }
}

#[test]
fn digests_and_signers_are_those_of_published_clients() {
    let (app, public, root) = (app(), array(ENV_PUBLIC), array(ROOT));
    assert_eq!(
        hex::encode(env_key_digest(&app, &public)),
        "f4f4780a9241565f6c497ada4585882867743d0c55262a7f80f788df2ef69927"
    );
    assert_eq!(
        hex::encode(env_key_digest_at(&app, &public, TIME)),
        "7376246c727a6d6cdb76e0a10288df117906761ec7cf5cbc4591ce7f9b38b520"
    );
    assert_eq!(recover(&env_key_digest(&app, &public), &array::<65>(FOREVER)), Ok(root));
    assert_eq!(recover(&env_key_digest_at(&app, &public, TIME), &array::<65>(TIMED)), Ok(root));
    let app_key = array("033c2f1784dab553a2014ec422a3ea1c8c5a2670c2d8891138e110362db79fc03d");
    let by_root = "00d1a678c71a920e41d53a5e673e5a2c686a34a36612231f30139fe5cc871f7c1351e396549e753bb9a46a37432ad170fb021ce8fca81f5bb095ad32139518c001";
    assert_eq!(verify_app_key(&app, &app_key, &array::<65>(by_root), &root), Ok(()));
    let ca = hex::decode("3059301306072a8648ce3d020106082a8648ce3d030107034200046ff03b949241ce1dadd43519e6960e0a85b41a69a05c328103aa2bce1594ca163c4f753a55bf01dc53f6c0b0c7eee78b40c6ff7d25a96e2282b989cef71c144a").unwrap();
    assert_eq!(
        hex::encode(bootstrap_report_data(&ca, &root)),
        "efdb94f7808290e0394b783e780c3e1970ef569fbae663c74f65ea6ecedcdf800000000000000000000000000000000000000000000000000000000000000000"
    );
}

#[test]
fn both_ways_to_count_the_last_byte_are_read() {
    let (digest, root) = (env_key_digest(&app(), &array(ENV_PUBLIC)), array(ROOT));
    let mut signature = array::<65>(FOREVER);
    for (v, expected) in [
        (1, Ok(root)),
        (28, Ok(root)),
        (2, Err(StatementError::Signature)),
        (29, Err(StatementError::Signature)),
    ] {
        signature[64] = v;
        assert_eq!(recover(&digest, &signature), expected, "{v}");
    }
    // Another point, another key.
    signature[64] = 0;
    assert_ne!(recover(&digest, &signature), Ok(root));
}

#[test]
fn the_larger_s_of_a_signature_is_refused() {
    let digest = env_key_digest(&app(), &array(ENV_PUBLIC));
    let mut signature = array::<65>(FOREVER);
    let small = Signature::from_slice(&signature[..64]).unwrap();
    let (r, s) = small.split_scalars();
    let large = Signature::from_scalars(r.to_bytes(), (-*s).to_bytes()).unwrap();
    signature[..64].copy_from_slice(&large.to_bytes());
    for v in [0, 1] {
        signature[64] = v;
        assert_eq!(recover(&digest, &signature), Err(StatementError::Signature));
    }
}

#[test]
fn an_environment_key_is_believed_for_five_minutes() {
    let (app, root) = (app(), array(ROOT));
    let check = |now| verify_env_answer(&app, &answer(), now, &root);
    for now in [TIME, TIME + 300, TIME - 60] {
        assert_eq!(check(now), Ok(array(ENV_PUBLIC)), "{now}");
    }
    assert_eq!(check(TIME + 301), Err(StatementError::TooOld { age: 301, max_age: 300 }));
    assert_eq!(check(TIME - 61), Err(StatementError::FromFuture(61)));
    assert_eq!(check(u64::MAX).unwrap_err(), StatementError::TooOld { age: u64::MAX - TIME, max_age: 300 });
    assert_eq!(check(0), Err(StatementError::FromFuture(TIME)));
}

#[test]
fn an_environment_key_of_others_is_not_believed() {
    let (app, root) = (app(), array(ROOT));
    let other_root = signer(9).1;
    assert_eq!(
        verify_env_answer(&app, &answer(), TIME, &other_root),
        Err(StatementError::OtherSigner { signer: root, expected: other_root })
    );
    let refused = |change: &dyn Fn(&mut EnvPublicKeyResponse)| {
        let mut answer = answer();
        change(&mut answer);
        verify_env_answer(&app, &answer, TIME, &root).unwrap_err()
    };
    refused(&|answer| answer.timestamp += 1);
    refused(&|answer| answer.public_key.0[31] ^= 1);
    refused(&|answer| answer.signature_v1 = answer.signature.clone());
    refused(&|answer| answer.signature = answer.signature_v1.clone());
    assert_eq!(refused(&|answer| answer.signature.0.clear()), StatementError::SignatureLength(0));
    let short = refused(&|answer| answer.public_key.0.truncate(31));
    assert_eq!(short.to_string(), "an environment key has 32 bytes, not 31");
    assert!(verify_env_answer(&AppId::from_bytes([1; 20]), &answer(), TIME, &root).is_err());
}

#[test]
fn a_chain_leads_from_a_key_to_the_root() {
    let ((root, trusted), (app_key, app_public)) = (signer(2), signer(3));
    let key = [7; 32];
    let chain =
        [sign(&app_key, &purpose_digest("signing", &key)), sign(&root, &app_key_digest(&app(), &app_public))];
    assert_eq!(verify_key_chain(&app(), "signing", &key, &chain, &trusted), Ok(app_public));
    assert!(verify_key_chain(&app(), "", &key, &chain, &trusted).is_err());
    let swapped = [chain[1].clone(), chain[0].clone()];
    assert!(verify_key_chain(&app(), "signing", &key, &swapped, &trusted).is_err());
    let empty: [Vec<u8>; 0] = [];
    assert_eq!(
        verify_key_chain(&app(), "signing", &key, &empty, &trusted),
        Err(StatementError::ChainLength(0))
    );
    let without_kms = [chain[0].clone(), Vec::new()];
    assert_eq!(
        verify_key_chain(&app(), "signing", &key, &without_kms, &trusted),
        Err(StatementError::SignatureLength(0))
    );
}

/// Roots, each signed by the one before.
fn roots(count: u8) -> Vec<RootInfo> {
    let mut roots: Vec<RootInfo> = Vec::new();
    for version in 1..=count {
        let k256 = signer(version).1;
        let ca = vec![version; 91];
        let predecessor_signature = (version > 1).then(|| {
            let digest = successor_digest(version.into(), &ca, &k256);
            Hex::from(sign(&signer(version - 1).0, &digest))
        });
        roots.push(RootInfo {
            version: version.into(),
            ca_pubkey: ca.into(),
            k256_pubkey: k256.into(),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            predecessor_signature,
            retired_at: None,
        });
    }
    roots
}

#[test]
fn who_trusts_one_root_comes_to_the_current_one() {
    let roots = roots(4);
    for trusted in &roots {
        let trusted = k256_public_of(trusted).unwrap();
        assert_eq!(current_root(&roots, &trusted).unwrap().version, 4);
    }
    let stranger = signer(200).1;
    assert_eq!(current_root(&roots, &stranger), Err(StatementError::UnknownRoot(stranger)));
    assert_eq!(current_root(&[], &stranger), Err(StatementError::UnknownRoot(stranger)));
}

#[test]
fn a_root_that_nobody_signed_is_no_successor() {
    let good = roots(3);
    let trusted = k256_public_of(&good[0]).unwrap();
    let refused = |change: &dyn Fn(&mut Vec<RootInfo>)| {
        let mut roots = good.clone();
        change(&mut roots);
        current_root(&roots, &trusted).unwrap_err()
    };
    assert_eq!(refused(&|roots| roots[2].predecessor_signature = None), StatementError::NoPredecessor(3));
    assert_eq!(refused(&|roots| drop(roots.remove(1))), StatementError::RootVersions);
    assert_eq!(refused(&|roots| roots[1].version = 1), StatementError::RootVersions);
    assert_eq!(
        refused(&|roots| *roots = vec![roots[0].clone(); MAX_ROOTS + 1]),
        StatementError::RootVersions
    );
    refused(&|roots| roots[1].ca_pubkey.0[0] ^= 1);
    refused(&|roots| roots[2].predecessor_signature = roots[1].predecessor_signature.clone());
    let other = refused(&|roots| roots[1].k256_pubkey = signer(9).1.into());
    assert!(matches!(other, StatementError::OtherSigner { .. }), "{other}");
    // A stranger who names the trusted root as its successor is not followed back.
    let mut forged = roots(2);
    forged.remove(0);
    let mut stranger = roots(1).remove(0);
    stranger.k256_pubkey = signer(77).1.into();
    forged.insert(0, stranger);
    let trusted = k256_public_of(&forged[1]).unwrap();
    assert_eq!(current_root(&forged, &trusted).unwrap().version, 2);
    assert!(current_root(&forged, &signer(77).1).is_err());
}

#[test]
fn parts_of_a_succession_cannot_be_moved_into_each_other() {
    let k256 = signer(1).1;
    let one = successor_digest(1, &[1, 2, 3], &k256);
    assert_ne!(one, successor_digest(1, &[1, 2], &k256));
    assert_ne!(one, successor_digest(2, &[1, 2, 3], &k256));
    assert_eq!(one, successor_digest(1, &[1, 2, 3], &k256));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn who_signed_is_recovered(secret in 1u8..0xFF, digest: [u8; 32], at in 0usize..65, flip in 1u8..) {
        let (key, public) = signer(secret);
        let signature = sign(&key, &digest);
        prop_assert_eq!(recover(&digest, &signature), Ok(public));
        let mut changed = signature;
        changed[at] ^= flip;
        // 0 and 27, and 1 and 28, mean the same.
        prop_assume!(at != 64 || !matches!(changed[64], 27 | 28));
        prop_assert_ne!(recover(&digest, &changed), Ok(public));
    }

    #[test]
    fn hostile_signatures_do_no_harm(digest: [u8; 32], bytes in proptest::collection::vec(any::<u8>(), 0..70)) {
        let _ = recover(&digest, &bytes);
        let whole: Vec<u8> = bytes.iter().copied().chain([0; 65]).take(65).collect();
        let _ = recover(&digest, &whole);
    }
}

#[test]
fn what_a_root_says_of_owners_holds_for_this_application_now() {
    let (key, root) = signer(1);
    let unsigned = AppOwnersResponse {
        app_id: app(),
        owners: Some(somebody()),
        serial: 7,
        allowed_documents: 2,
        timestamp: TIME,
        signature: Hex::default(),
        root_version: 1,
    };
    let signed = |answer: &AppOwnersResponse| AppOwnersResponse {
        signature: sign(&key, &app_owners_digest(answer)).into(),
        ..answer.clone()
    };
    for answer in
        [signed(&unsigned), signed(&AppOwnersResponse { owners: None, serial: 0, ..unsigned.clone() })]
    {
        assert_eq!(verify_app_owners(&app(), &answer, TIME, &root), Ok(()));
        assert!(matches!(
            verify_app_owners(&app(), &answer, TIME + 301, &root),
            Err(StatementError::TooOld { age: 301, .. })
        ));
        assert!(matches!(
            verify_app_owners(&app(), &answer, TIME - 61, &root),
            Err(StatementError::FromFuture(61))
        ));
        let other = AppId::from_bytes([1; 20]);
        assert_eq!(
            verify_app_owners(&other, &answer, TIME, &root),
            Err(StatementError::OtherApplication(app()))
        );
        assert!(verify_app_owners(&app(), &answer, TIME, &signer(2).1).is_err());
        let changes: [fn(&mut AppOwnersResponse); 5] = [
            |answer| answer.owners = if answer.owners.is_some() { None } else { Some(somebody()) },
            |answer| answer.serial += 1,
            |answer| answer.allowed_documents += 1,
            |answer| answer.timestamp += 1,
            |answer| answer.root_version += 1,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut other = answer.clone();
            change(&mut other);
            assert!(verify_app_owners(&app(), &other, TIME, &root).is_err(), "change {index}");
        }
    }
}

fn somebody() -> Owners {
    let line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
    Owners::new(1, vec![line.parse().unwrap()]).unwrap()
}
