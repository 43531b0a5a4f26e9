//! Documents of AWS Nitro.

use ciborium::Value;
use cloister_evidence::{InvalidNitroDocument, MAX_NITRO_DOCUMENT_BYTES, NitroDocument, NitroKind};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::samples;
use crate::support::{every_flip_shows, every_truncation_fails, published};

/// The sample with one member replaced, or taken away.
fn with(name: &str, value: Option<Value>) -> Result<NitroDocument, InvalidNitroDocument> {
    let mut members = samples::nitro_members();
    members.retain(|(known, _)| *known != name);
    members.extend(value.map(|value| (name, value)));
    NitroDocument::parse(&samples::nitro(members))
}

fn raw(length: usize) -> Value {
    Value::Bytes(vec![1; length])
}

#[test]
fn a_document_is_read_with_its_tag_and_without() {
    let tagged = samples::nitro(samples::nitro_members());
    let document = NitroDocument::parse(&tagged).unwrap();
    assert_eq!(NitroDocument::parse(&tagged[1..]).unwrap(), document);
    assert_eq!(document.kind, NitroKind::Enclave);
    assert_eq!(document.timestamp, 1_790_000_000_000);
    assert_eq!(document.pcrs.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 4]);
    assert_eq!((document.cabundle.len(), document.public_key.as_ref()), (2, None));
    assert_eq!(document.nonce.as_deref(), Some([0x6e; 32].as_slice()));
    assert_eq!(document.signature.as_slice(), &tagged[tagged.len() - 96..]);
    assert_eq!(document.device_id(), <[u8; 32]>::from(Sha256::digest("i-0123456789abcdef0")));
    let pcrs = [[1; 48], [2; 48], [3; 48]].concat();
    assert_eq!(document.image_hash(), Some(Sha256::digest(pcrs).into()));
    assert!(!document.is_debug());
    let signed: Value = ciborium::from_reader(document.signed().as_slice()).unwrap();
    let signed = signed.into_array().unwrap();
    assert_eq!(signed[0].as_text(), Some("Signature1"));
    assert_eq!(signed[1].as_bytes().unwrap(), &[0xa1, 0x01, 0x38, 0x22]);
}

#[test]
fn members_keep_their_limits() {
    for (name, accepted, refused) in [
        (
            "public_key",
            vec![None, Some(Value::Null), Some(raw(1024))],
            vec![Some(raw(1025)), Some(Value::from("x"))],
        ),
        ("user_data", vec![None, Some(raw(0)), Some(raw(512))], vec![Some(raw(513)), Some(Value::from(1))]),
        ("nonce", vec![None, Some(raw(512))], vec![Some(raw(513))]),
        (
            "certificate",
            vec![Some(raw(1)), Some(raw(1024))],
            vec![None, Some(raw(0)), Some(raw(1025)), Some(Value::Null)],
        ),
        (
            "cabundle",
            vec![Some(Value::Array(vec![raw(9); 8]))],
            vec![None, Some(Value::Array(vec![])), Some(Value::Array(vec![raw(9); 9])), Some(raw(9))],
        ),
        ("timestamp", vec![Some(Value::from(1))], vec![None, Some(Value::from(0)), Some(Value::from(-1))]),
        ("digest", vec![Some(Value::from("SHA384"))], vec![None, Some(Value::from("SHA256"))]),
        ("module_id", vec![Some(Value::from("i-1"))], vec![None, Some(Value::from("")), Some(raw(3))]),
    ] {
        for value in accepted {
            assert!(with(name, value.clone()).is_ok(), "{name} {value:?}");
        }
        for value in refused {
            assert_eq!(
                with(name, value.clone()),
                Err(InvalidNitroDocument::Member(name)),
                "{name} {value:?}"
            );
        }
    }
}

#[test]
fn registers_are_distinct_and_of_the_one_size() {
    let pcrs = |pairs: Vec<(u64, usize)>| {
        let pairs = pairs.into_iter().map(|(index, length)| (Value::from(index), raw(length)));
        with("pcrs", Some(Value::Map(pairs.collect())))
    };
    assert!(pcrs(vec![(31, 48)]).is_ok());
    for wrong in
        [vec![], vec![(32, 48)], vec![(300, 48)], vec![(0, 32)], vec![(0, 64)], vec![(0, 48), (0, 48)]]
    {
        assert_eq!(pcrs(wrong.clone()), Err(InvalidNitroDocument::Member("pcrs")), "{wrong:?}");
    }
    assert!(pcrs(vec![(0, 48), (1, 48)]).unwrap().image_hash().is_none());
    let both = Value::Map(vec![(Value::from(0), raw(48))]);
    assert_eq!(with("nitrotpm_pcrs", Some(both.clone())), Err(InvalidNitroDocument::Member("pcrs")));
    let mut tpm = samples::nitro_members();
    tpm.retain(|(name, _)| *name != "pcrs");
    let three = [0, 1, 2].map(|index| (Value::from(index), raw(48)));
    tpm.push(("nitrotpm_pcrs", Value::Map(three.to_vec())));
    let tpm = NitroDocument::parse(&samples::nitro(tpm)).unwrap();
    assert_eq!(tpm.kind, NitroKind::NitroTpm);
    // The same registers of a TPM are those of its firmware, and no image's.
    assert!(with("pcrs", Some(Value::Map(three.to_vec()))).unwrap().image_hash().is_some());
    assert!(tpm.image_hash().is_none());
    let zeros = [0, 1, 2].map(|index| (Value::from(index), Value::Bytes(vec![0; 48])));
    assert!(with("pcrs", Some(Value::Map(zeros.to_vec()))).unwrap().is_debug());
}

#[test]
fn names_that_occur_twice_are_refused() {
    let mut members = samples::nitro_members();
    members.push(("nonce", Value::Null));
    assert_eq!(NitroDocument::parse(&samples::nitro(members)), Err(InvalidNitroDocument::Payload));
}

#[test]
fn only_es384_is_taken() {
    let valid = samples::nitro(samples::nitro_members());
    assert_eq!(&valid[..7], [0xd2, 0x84, 0x44, 0xa1, 0x01, 0x38, 0x22]);
    let mut es256 = valid.clone();
    es256.splice(2..7, [0x43, 0xa1, 0x01, 0x26]);
    assert_eq!(NitroDocument::parse(&es256), Err(InvalidNitroDocument::Headers));
    let mut unprotected = valid.clone();
    assert_eq!(unprotected[7], 0xa0);
    unprotected.splice(7..8, [0xa1, 0x04, 0x41, 0x31]);
    assert_eq!(NitroDocument::parse(&unprotected), Err(InvalidNitroDocument::Headers));
    let mut followed = valid.clone();
    followed.push(0);
    assert_eq!(NitroDocument::parse(&followed), Err(InvalidNitroDocument::Cose));
    followed.resize(MAX_NITRO_DOCUMENT_BYTES + 1, 0);
    assert_eq!(NitroDocument::parse(&followed), Err(InvalidNitroDocument::TooLong));
}

#[test]
fn damage_shows() {
    let bytes = samples::nitro(samples::nitro_members());
    every_flip_shows(&bytes, |bytes| {
        let document = NitroDocument::parse(bytes).ok()?;
        Some((document.signed(), document.signature))
    });
    every_truncation_fails(&bytes, |bytes| NitroDocument::parse(bytes).ok());
}

#[test]
fn published_documents_name_their_images() {
    for (file, timestamp, image_hash) in [
        (
            "nitro/doc_a.cose",
            1_766_668_537_578,
            "e0e742bd62280472ea840647754203d599cb39a7966cfed11237c1e86de9c857",
        ),
        (
            "nitro/doc_b.cose",
            1_766_678_659_346,
            "1894b0b29e94a9db16e88a2914f0923e52bb16c08bf3bb484df786a147e2eb79",
        ),
        (
            "minted/nitro_untagged.cose",
            1_790_000_000_000,
            "2cc35be11a332cbdfe462725a65dd826f84d8bcf40dde2fc1dce8360a161df83",
        ),
        (
            "minted/nitro_tagged.cose",
            1_790_000_000_000,
            "2cc35be11a332cbdfe462725a65dd826f84d8bcf40dde2fc1dce8360a161df83",
        ),
    ] {
        let Some(bytes) = published(file) else { return };
        let document = NitroDocument::parse(&bytes).unwrap();
        assert_eq!(document.timestamp, timestamp, "{file}");
        assert_eq!(hex::encode(document.image_hash().unwrap()), image_hash, "{file}");
        assert!(!document.is_debug(), "{file}");
        assert_eq!(document.user_data.as_ref().map(Vec::len), Some(64), "{file}");
    }
    for file in ["nitro/doc_debug.cose", "minted/nitro_debug_zero_pcrs.cose"] {
        assert!(NitroDocument::parse(&published(file).unwrap()).unwrap().is_debug(), "{file}");
    }
    let bytes = published("nitro/doc_a.cose").unwrap();
    every_truncation_fails(&bytes, |bytes| NitroDocument::parse(bytes).ok());
    every_flip_shows(&bytes, |bytes| {
        let document = NitroDocument::parse(bytes).ok()?;
        Some((document.signed(), document.signature))
    });
}

proptest! {
    #[test]
    fn anything_parses_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = NitroDocument::parse(&bytes);
    }

    #[test]
    fn any_payload_parses_or_is_refused(payload in proptest::collection::vec(any::<u8>(), 0..512)) {
        let mut bytes = vec![0x84, 0x44, 0xa1, 0x01, 0x38, 0x22, 0xa0, 0x59];
        bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend(payload);
        bytes.extend([0x58, 96]);
        bytes.extend([7; 96]);
        let _ = NitroDocument::parse(&bytes);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let mut payload = vec![0x81; 8000];
    payload.push(0);
    let mut bytes = vec![0x84, 0x44, 0xa1, 0x01, 0x38, 0x22, 0xa0, 0x59];
    bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes.extend([0x58, 96]);
    bytes.extend([7; 96]);
    assert_eq!(NitroDocument::parse(&bytes), Err(InvalidNitroDocument::Payload));
    assert_eq!(NitroDocument::parse(&[0x81; 8000]), Err(InvalidNitroDocument::Cose));
}
