//! Quotes.

use cloister_evidence::quote::{
    EnclaveReport, InvalidCertification, MAX_QUOTE_BYTES, PckCa, PckCertificate, QuoteBody, TdReport,
};
use cloister_evidence::{InvalidQuote, Quote};
use proptest::prelude::*;

use crate::samples;
use crate::support::{every_flip_shows, every_truncation_fails, published_bytes};

const TDX: u32 = 0x81;
const KINDS: [(u16, u32, Option<u16>); 7] = [
    (3, 0, None),
    (4, 0, None),
    (4, TDX, None),
    (5, 0, Some(1)),
    (5, TDX, Some(2)),
    (5, TDX, Some(3)),
    (5, TDX, Some(4)),
];

/// Puts a quote together from its parts; shows that they leave nothing out.
fn written(quote: &Quote<'_>) -> Vec<u8> {
    let header = quote.header;
    let mut bytes = header.version.to_le_bytes().to_vec();
    bytes.extend(header.ak_type.to_le_bytes());
    bytes.extend(header.tee_type.to_le_bytes());
    bytes.extend(header.qe_svn.to_le_bytes());
    bytes.extend(header.pce_svn.to_le_bytes());
    bytes.extend(header.qe_vendor);
    bytes.extend(header.user_data);
    let body = match &quote.body {
        QuoteBody::Enclave(EnclaveReport { bytes, .. }) => bytes.to_vec(),
        QuoteBody::Td(report) => written_td(report),
    };
    if let Some(kind) = quote.body_type {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    }
    bytes.extend(body);
    assert_eq!(quote.signed(), bytes);
    let mut qe = quote.qe_report.bytes.to_vec();
    qe.extend(quote.qe_report_signature);
    qe.extend(u16::try_from(quote.qe_auth_data.len()).unwrap().to_le_bytes());
    qe.extend(quote.qe_auth_data);
    qe.extend(quote.certification.kind.to_le_bytes());
    qe.extend(u32::try_from(quote.certification.data.len()).unwrap().to_le_bytes());
    qe.extend(quote.certification.data);
    let mut auth = quote.signature.to_vec();
    auth.extend(quote.attestation_key);
    if header.version > 3 {
        auth.extend(6_u16.to_le_bytes());
        auth.extend(u32::try_from(qe.len()).unwrap().to_le_bytes());
    }
    auth.extend(qe);
    bytes.extend(u32::try_from(auth.len()).unwrap().to_le_bytes());
    bytes.extend(auth);
    bytes
}

fn written_td(report: &TdReport<'_>) -> Vec<u8> {
    let mut bytes = report.tee_tcb_svn.to_vec();
    bytes.extend(report.mrseam.as_bytes());
    bytes.extend(report.mrsignerseam.as_bytes());
    bytes.extend(report.seamattributes);
    bytes.extend(report.tdattributes);
    bytes.extend(report.xfam);
    let launch = report.launch_identity();
    for register in [report.mrtd, launch.config_id, launch.owner, launch.owner_config] {
        bytes.extend(register.as_bytes());
    }
    for register in report.registers().rtmrs() {
        bytes.extend(register.as_bytes());
    }
    bytes.extend(report.reportdata);
    if let Some(added) = &report.td15 {
        bytes.extend(added.tee_tcb_svn2);
        bytes.extend(added.mrservicetd.as_bytes());
    }
    if let Some(added) = &report.td15ex {
        bytes.push(added.vm_id);
        bytes.extend(added.td_id);
        bytes.extend(added.dev_info.as_bytes());
        bytes.extend(added.initial_service_td.hash.as_bytes());
        bytes.extend(added.initial_service_td.attributes);
        bytes.extend(added.initial_cpu_svn);
        bytes.extend(added.initial_tee_tcb_svn);
        bytes.extend(added.initial_tee_fmspc);
        bytes.extend(added.current_service_td.hash.as_bytes());
        bytes.extend(added.current_service_td.attributes);
    }
    bytes
}

#[test]
fn every_kind_is_the_sum_of_its_parts() {
    for (version, tee_type, body_type) in KINDS {
        let bytes = samples::quote(version, tee_type, body_type);
        let quote = Quote::parse(&bytes).unwrap();
        assert_eq!(written(&quote), bytes);
        assert_eq!(quote.td_report().is_some(), tee_type == TDX);
        assert_eq!(quote.enclave_report().is_some(), tee_type == 0);
        let platform = quote.certification.pck_certificate().unwrap();
        assert_eq!(platform.fmspc, [0xc0, 0xff, 0xee, 0, 0, 0]);
    }
}

#[test]
fn fields_stand_where_the_layout_puts_them() {
    for (bytes, shift) in [(samples::quote(4, TDX, None), 0), (samples::quote(5, TDX, Some(4)), 6)] {
        let at = |offset: usize, length: usize| &bytes[offset + shift..offset + shift + length];
        let quote = Quote::parse(&bytes).unwrap();
        let report = quote.td_report().unwrap();
        assert_eq!(report.tdattributes, at(168, 8));
        assert_eq!(report.mrtd.as_bytes(), at(184, 48));
        assert_eq!(report.mrconfigid.as_bytes(), at(232, 48));
        assert_eq!(report.rtmr0.as_bytes(), at(376, 48));
        assert_eq!(report.rtmr3.as_bytes(), at(520, 48));
        assert_eq!(quote.report_data(), at(568, 64));
    }
    let bytes = samples::quote(3, 0, None);
    let quote = Quote::parse(&bytes).unwrap();
    let report = quote.enclave_report().unwrap();
    assert_eq!(report.attributes, &bytes[48 + 48..][..16]);
    assert_eq!(report.mr_enclave, &bytes[48 + 64..][..32]);
    assert_eq!(report.mr_signer, &bytes[48 + 128..][..32]);
    assert_eq!(report.isv_prod_id.to_le_bytes(), bytes[48 + 256..][..2]);
    assert_eq!(report.isv_svn.to_le_bytes(), bytes[48 + 258..][..2]);
    assert_eq!(report.report_data, &bytes[48 + 320..][..64]);
}

#[test]
fn damage_shows() {
    for (version, tee_type, body_type) in KINDS {
        let bytes = samples::quote(version, tee_type, body_type);
        every_flip_shows(&bytes, |bytes| Quote::parse(bytes).ok().map(|quote| written(&quote)));
        every_truncation_fails(&bytes, |bytes| Quote::parse(bytes).ok().map(|_| ()));
    }
}

#[test]
fn only_zeros_may_follow() {
    let mut bytes = samples::quote(4, TDX, None);
    let length = bytes.len();
    bytes.extend([0; 70]);
    assert_eq!(Quote::parse(&bytes).unwrap().bytes(), &bytes[..length]);
    *bytes.last_mut().unwrap() = 1;
    assert_eq!(Quote::parse(&bytes), Err(InvalidQuote::Leftover("behind its end")));
    bytes.resize(MAX_QUOTE_BYTES + 1, 0);
    assert_eq!(Quote::parse(&bytes), Err(InvalidQuote::TooLong));
}

#[test]
fn wrong_versions_types_and_lengths_are_refused() {
    let with = |offset: usize, value: &[u8]| {
        let mut bytes = samples::quote(5, TDX, Some(3));
        bytes[offset..offset + value.len()].copy_from_slice(value);
        Quote::parse(&bytes).map(|_| ())
    };
    assert_eq!(with(0, &[2, 0]), Err(InvalidQuote::Version(2)));
    assert_eq!(with(0, &[6, 0]), Err(InvalidQuote::Version(6)));
    assert_eq!(with(2, &[3, 0]), Err(InvalidQuote::KeyType(3)));
    assert_eq!(with(4, &[0x82]), Err(InvalidQuote::TeeType(0x82)));
    assert_eq!(with(4, &[0]), Err(InvalidQuote::TeeType(0)), "a TD body in a quote for an enclave");
    assert_eq!(with(48, &[1]), Err(InvalidQuote::TeeType(TDX)), "an enclave's body in a quote for a TD");
    assert_eq!(with(48, &[5]), Err(InvalidQuote::BodyType(5)));
    assert_eq!(with(48, &[0]), Err(InvalidQuote::BodyType(0)));
    assert_eq!(with(48, &[2]), Err(InvalidQuote::BodySize { kind: 2, size: 648 }));
    let auth_length = 54 + 648;
    assert_eq!(with(auth_length, &[0xff; 4]), Err(InvalidQuote::Truncated));
    assert_eq!(with(auth_length + 4 + 128, &[5, 0]), Err(InvalidQuote::Certification(5)));
}

#[test]
fn the_platforms_certificate_says_who_it_is() {
    let bytes = samples::quote(4, TDX, None);
    let quote = Quote::parse(&bytes).unwrap();
    let platform = quote.certification.pck_certificate().unwrap();
    assert_eq!(hex::encode(platform.ppid), "00112233445566778899aabbccddeeff");
    assert_eq!(platform.tcb_components, std::array::from_fn(|index| u8::try_from(index).unwrap() + 1));
    assert_eq!(platform.cpu_svn, platform.tcb_components);
    assert_eq!((platform.pce_svn, platform.pce_id, platform.sgx_type), (300, [0, 0], 1));
    assert_eq!(platform.ca, Some(PckCa::Platform));
    assert_eq!(platform.platform_instance_id.map(|id| id[0]), Some(0x0f));
    assert_eq!(quote.certification.pem_chain().unwrap(), samples::PCK_CERTIFICATE);
}

#[test]
fn certificates_are_damaged_without_harm() {
    let bytes = samples::quote(4, TDX, None);
    let quote = Quote::parse(&bytes).unwrap();
    let der = quote.certification.certificates().unwrap().remove(0);
    every_truncation_fails(&der, |der| PckCertificate::parse(der).ok());
    for index in 0..der.len() {
        let mut damaged = der.clone();
        damaged[index] ^= 0xff;
        drop(PckCertificate::parse(&damaged));
    }
    let mut other = quote.certification;
    other.kind = 3;
    assert_eq!(other.pem_chain(), Err(InvalidCertification::Kind(3)));
    for text in ["", "no PEM", "-----BEGIN CERTIFICATE-----\n"] {
        other = quote.certification;
        other.data = text.as_bytes();
        assert_eq!(other.certificates(), Err(InvalidCertification::Pem), "{text}");
    }
}

#[test]
fn published_quotes_are_the_sum_of_their_parts() {
    let published = [
        ("dcap/sgx_v3.bin", 3, "00a067110000", "d04ec06d4e6d92dc90d0ad3cf5ee2ddf", PckCa::Processor),
        ("dcap/tdx_v4_td10.bin", 4, "b0c06f000000", "811dca2a26b952e85bb6448b097ba4fd", PckCa::Platform),
        (
            "dcap/tdx_v5_td15_nolevel.bin",
            5,
            "90c06f000000",
            "66498c9263c04ed2f0657c530ac2b0cb",
            PckCa::Platform,
        ),
        ("dcap/tdx_v5_td15ex.bin", 5, "b0c06f000000", "d6fbe62fefe590c45a33afa4adaad111", PckCa::Platform),
        ("dcap/tdx_v4_old_a.hex", 4, "b0c06f000000", "de5d028ab970ae67f36c3da32d5ee27e", PckCa::Platform),
        ("dcap/tdx_v4_old_b.hex", 4, "b0c06f000000", "de5d028ab970ae67f36c3da32d5ee27e", PckCa::Platform),
        (
            "dstack/simulator_quote.bin",
            4,
            "b0c06f000000",
            "80d4a149124353c7a2bb76551603f31b",
            PckCa::Platform,
        ),
        (
            "minted/quote_v5_td10body.bin",
            5,
            "c0ffee000000",
            "c1015ed0c1015ed0c1015ed0c1015ed0",
            PckCa::Platform,
        ),
    ];
    for (file, version, fmspc, ppid, ca) in published {
        let Some(bytes) = published_bytes(file) else { return };
        let quote = Quote::parse(&bytes).unwrap();
        assert_eq!(quote.header.version, version, "{file}");
        assert_eq!(written(&quote), quote.bytes(), "{file}");
        let platform = quote.certification.pck_certificate().unwrap();
        assert_eq!((hex::encode(platform.fmspc), hex::encode(platform.ppid)), (fmspc.into(), ppid.into()));
        assert!(platform.ca == Some(ca) || file.starts_with("minted"), "{file}: {:?}", platform.ca);
        assert!(quote.td_report().is_none_or(|report| !report.is_debug()), "{file}");
    }
    let bytes = published_bytes("minted/quote_v4_debug.bin").unwrap();
    assert!(Quote::parse(&bytes).unwrap().td_report().unwrap().is_debug());
    let bytes = published_bytes("dcap/tdx_v5_td15ex.bin").unwrap();
    every_flip_shows(&bytes, |bytes| Quote::parse(bytes).ok().map(|quote| written(&quote)));
    every_truncation_fails(&bytes, |bytes| Quote::parse(bytes).ok().map(|_| ()));
}

proptest! {
    #[test]
    fn anything_parses_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = Quote::parse(&bytes);
        let _ = PckCertificate::parse(&bytes);
    }

    #[test]
    fn any_tail_parses_or_is_refused(cut in 0..632_usize, tail in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let mut bytes = samples::quote(4, TDX, None);
        bytes.truncate(cut);
        bytes.extend(tail);
        if let Ok(quote) = Quote::parse(&bytes) {
            prop_assert_eq!(written(&quote), quote.bytes());
        }
    }
}
