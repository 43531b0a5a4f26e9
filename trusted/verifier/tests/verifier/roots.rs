//! The pinned roots are those that their vendors publish, and the development root is none of them.

use cloister_verifier::{Clock, RootsError, TrustRoot, TrustRoots, Verifier, VerifyError};
use sha2::{Digest as _, Sha256};

use crate::support::{Minted, now, read, testdata};

const ALL: [TrustRoot; 6] = [
    TrustRoot::IntelSgxRootCa,
    TrustRoot::AwsNitroEnclavesRootG1,
    TrustRoot::AmdArkMilan,
    TrustRoot::AmdArkGenoa,
    TrustRoot::AmdArkTurin,
    TrustRoot::Development,
];

/// SHA-256 of each certificate (DER) as published: Intel's by its trusted services, AWS's in the guide to
/// verifying the root of trust, AMD's at the key distribution service.
#[test]
fn pinned_roots_have_their_published_hashes() {
    let roots = TrustRoots::vendors();
    let hashes: Vec<_> = ALL
        .into_iter()
        .map(|root| {
            format!("{root}: {:?}", roots.certificate(root).map(|der| hex::encode(Sha256::digest(der))))
        })
        .collect();
    insta::assert_snapshot!(hashes.join("\n"));
    let hash = |root| hex::encode(Sha256::digest(roots.certificate(root).unwrap()));
    assert_eq!(
        hash(TrustRoot::IntelSgxRootCa),
        "44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"
    );
    assert_eq!(
        hash(TrustRoot::AwsNitroEnclavesRootG1),
        "641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b"
    );
}

#[test]
fn pinned_roots_are_those_of_the_published_vectors() {
    let Some(_) = testdata() else { return };
    let roots = TrustRoots::vendors();
    let intel = read("dcap/intel_sgx_root_ca.der").unwrap();
    assert_eq!(roots.certificate(TrustRoot::IntelSgxRootCa), Some(intel.as_slice()));
    assert_eq!(roots.named(&intel), Some(TrustRoot::IntelSgxRootCa));
    let pem = read("nitro/AWS_NitroEnclaves_Root-G1.pem").unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
    assert_eq!(roots.certificate(TrustRoot::AwsNitroEnclavesRootG1), Some(pem.contents.as_slice()));
}

#[test]
fn production_and_the_development_root_refuse_each_other() {
    let minted = Minted::new();
    let root = minted.vendor.root_der();
    let production = TrustRoots::vendors().in_production().unwrap();
    assert!(production.is_production());
    let refused = production.clone().with_development_root(root);
    assert_eq!(refused.unwrap_err(), RootsError::DevelopmentInProduction);
    let development = TrustRoots::vendors().with_development_root(root).unwrap();
    assert_eq!(development.clone().in_production().unwrap_err(), RootsError::DevelopmentInProduction);
    assert_eq!(development.with_development_root(root).unwrap_err(), RootsError::Twice);

    // The very same evidence: good where the root is configured, nothing where it is not.
    let (quote, collateral) = (minted.quote(), minted.collateral());
    minted.verifier().quote_with(&quote, &collateral, now()).unwrap();
    for roots in [production, TrustRoots::vendors()] {
        let verifier = Verifier::offline(roots, Clock::fixed(now()));
        assert_eq!(verifier.quote_with(&quote, &collateral, now()).unwrap_err(), VerifyError::UnknownRoot);
    }
}

#[test]
fn only_authorities_can_be_the_development_root() {
    let minted = Minted::new();
    let leaf = minted.verifier().collateral_key(&minted.quote()).map(|_| minted.quote()).unwrap();
    let quote = dcap_qvl::quote::Quote::parse(&leaf).unwrap();
    let chain = dcap_qvl::intel::extract_cert_chain(&quote).unwrap();
    let intel = TrustRoots::vendors().certificate(TrustRoot::IntelSgxRootCa).unwrap().to_vec();
    let with_more = [minted.vendor.root_der(), &[0]].concat();
    for (name, der) in [
        ("a platform's certificate", chain[0].clone()),
        ("Intel's root under another name", intel),
        ("something after it", with_more),
        ("nothing", Vec::new()),
        ("too much", vec![0x30; 1 << 20]),
    ] {
        let refused = TrustRoots::vendors().with_development_root(der);
        assert_eq!(refused.unwrap_err(), RootsError::NotARoot, "{name}");
    }
}

#[test]
fn only_the_development_root_is_no_hardware() {
    for root in ALL {
        assert_eq!(root.is_hardware(), root != TrustRoot::Development);
        assert_eq!(root.to_string().contains("development"), !root.is_hardware());
    }
}
