//! Headers made by cryptsetup itself, and what becomes of them under a hostile hand or a power cut.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;

const SEED: [u8; SEED_BYTES] = [0xc1; SEED_BYTES];
const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER_KEY: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

/// Runs cryptsetup; none where it is not installed.
fn cryptsetup(arguments: &[String], stdin: &str) -> Option<i32> {
    // Not everybody's search path has the folder of administrators' programs.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let command = Command::new("cryptsetup").env("PATH", path).args(arguments).stdin(Stdio::piped()).spawn();
    let Ok(mut child) = command else {
        eprintln!("SKIPPED: what cryptsetup makes of headers: cryptsetup is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait().unwrap().code()
}

fn test_key(header: &Path, key: &str) -> Option<i32> {
    let arguments = ["open", "--test-passphrase", "--type=luks2", "--key-file=-", "--disable-locks"];
    let mut arguments = arguments.map(str::to_owned).to_vec();
    arguments.push(header.display().to_string());
    cryptsetup(&arguments, key)
}

struct Made {
    folder: tempfile::TempDir,
    header: PathBuf,
}

/// A header as cryptsetup makes it for us.
fn make(extra: &[&str]) -> Option<Made> {
    let folder = tempfile::tempdir().unwrap();
    let (header, disk) = (folder.path().join("header"), folder.path().join("disk"));
    fs::write(&header, vec![0; HEADER_BYTES]).unwrap();
    fs::File::create(&disk).unwrap().set_len(PAYLOAD_OFFSET + (1 << 20)).unwrap();
    let mut arguments = cryptsetup::format(header.to_str().unwrap(), disk.to_str().unwrap(), &SEED);
    for word in extra {
        let option = word.split('=').next().unwrap();
        arguments.retain(|argument| argument.split('=').next().unwrap() != option);
        arguments.push((*word).to_owned());
    }
    let status = cryptsetup(&arguments, KEY)?;
    assert_eq!(status, 0);
    let untouched = fs::read(&disk).unwrap();
    assert!(untouched.iter().all(|byte| *byte == 0), "cryptsetup wrote to the disk");
    Some(Made { folder, header })
}

/// One header before and after its key was changed, as cryptsetup made them.
struct Real {
    before: Vec<u8>,
    after: Vec<u8>,
}

static REAL: LazyLock<Option<Real>> = LazyLock::new(|| {
    let made = make(&[])?;
    let before = ours(&fs::read(&made.header).unwrap()).image();
    // As the guest does: the change is made to a header written anew.
    fs::write(&made.header, &before).unwrap();
    let arguments = cryptsetup::change_key(made.header.to_str().unwrap());
    assert_eq!(cryptsetup(&arguments, &format!("{KEY}{OTHER_KEY}")), Some(0));
    let after = fs::read(&made.header).unwrap();
    Some(Real { before, after })
});

fn ours(disk: &[u8]) -> Header {
    match survey(disk) {
        Ok(DiskHead::Header(header)) => *header,
        other => panic!("{other:?}"),
    }
}

/// Applies a change to the JSON of both copies, whose checksums are good again afterwards.
fn with_json(disk: &[u8], change: impl Fn(String) -> String) -> Vec<u8> {
    let mut disk = disk.to_vec();
    for copy in [Copy::First, Copy::Second] {
        let copy = &mut disk[copy.offset()..][..COPY_BYTES];
        let json = &copy[4096..];
        let end = json.iter().position(|byte| *byte == 0).unwrap();
        let text = change(String::from_utf8(json[..end].to_vec()).unwrap());
        copy[4096..].fill(0);
        copy[4096..][..text.len()].copy_from_slice(text.as_bytes());
        sum(copy);
    }
    disk
}

fn sum(copy: &mut [u8]) {
    copy[448..512].fill(0);
    let sum = Sha256::digest(&*copy);
    copy[448..480].copy_from_slice(&sum);
}

fn refusal(disk: &[u8]) -> String {
    survey(disk).unwrap_err().to_string()
}

#[test]
fn accepts_what_cryptsetup_makes_and_cryptsetup_accepts_what_is_made_of_it() {
    let Some(made) = make(&[]) else { return };
    let header = ours(&fs::read(&made.header).unwrap());
    assert_eq!(header.seed(), SEED);
    fs::write(&made.header, header.image()).unwrap();
    assert_eq!(ours(&header.image()), header);
    assert_eq!(test_key(&made.header, KEY), Some(0));
    assert_eq!(test_key(&made.header, OTHER_KEY), Some(cryptsetup::WRONG_KEY));
    // Each copy alone is enough, for us and for it.
    for copy in [Copy::First, Copy::Second] {
        let mut image = header.image();
        image[copy.offset()..][..COPY_BYTES].fill(0);
        assert_eq!(ours(&image).image(), header.image());
        fs::write(&made.header, ours(&image).image()).unwrap();
        assert_eq!(test_key(&made.header, KEY), Some(0));
    }
    drop(made.folder);
}

#[test]
fn a_changed_key_moves_to_the_other_area_and_the_former_key_is_gone() {
    let Some(real) = REAL.as_ref() else { return };
    let (before, after) = (ours(&real.before), ours(&real.after));
    assert!(after.sequence() > before.sequence());
    assert_ne!(after.metadata.key_area(), before.metadata.key_area());
    assert_eq!(after.seed(), SEED);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("header");
    fs::write(&file, after.image()).unwrap();
    assert_eq!(test_key(&file, OTHER_KEY), Some(0));
    assert_eq!(test_key(&file, KEY), Some(cryptsetup::WRONG_KEY));
    // And back into the first area.
    let arguments = cryptsetup::change_key(file.to_str().unwrap());
    assert_eq!(cryptsetup(&arguments, &format!("{OTHER_KEY}{KEY}")), Some(0));
    assert_eq!(ours(&fs::read(&file).unwrap()).metadata.key_area(), before.metadata.key_area());
}

#[test]
fn the_json_is_the_documented_one() {
    let Some(real) = REAL.as_ref() else { return };
    let mut json: serde_json::Value = serde_json::from_slice(&ours(&real.before).metadata.text()).unwrap();
    for pointer in ["/keyslots/0/kdf/salt", "/digests/0/salt", "/digests/0/digest"] {
        *json.pointer_mut(pointer).unwrap() = "(random)".into();
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
}

/// Each is a header that cryptsetup would open, and that an attacker or another system could have made.
#[test]
fn refuses_every_freedom_that_luks_leaves() {
    let mut refusals = String::new();
    for extra in [
        "--cipher=aes-xts-plain",
        "--key-size=256",
        "--sector-size=512",
        "--offset=65536",
        "--hash=sha256",
        "--pbkdf-force-iterations=2000",
        "--label=",
        "--label=C1C1C1C1C1C1C1C1C1C1C1C1C1C1C1C1C1C1C1C1",
        "--subsystem=another",
        "--luks2-metadata-size=32k",
    ] {
        let Some(made) = make(&[extra]) else { return };
        let disk = fs::read(&made.header).unwrap();
        refusals += &format!("{}: {}\n", extra, refusal(&disk));
    }
    let Some(real) = REAL.as_ref() else { return };
    let null = "\"encryption\":\"aes-xts-plain64\",\"key_size\":64";
    for (what, from, to) in [
        ("key slot without cipher", null, "\"encryption\":\"cipher_null-ecb\",\"key_size\":64"),
        ("segment without cipher", "aes-xts-plain64\",\"sector", "cipher_null-ecb\",\"sector"),
        ("token", "\"tokens\":{}", "\"tokens\":{\"0\":{\"type\":\"x\",\"keyslots\":[\"0\"]}}"),
        ("requirement", "\"config\":{", "\"config\":{\"requirements\":{\"mandatory\":[\"x\"]},"),
        ("flag", "\"516096\"}", "\"516096\",\"flags\":[\"allow-discards\"]}"),
        ("integrity", "\"sector_size\":4096", "\"sector_size\":4096,\"integrity\":{\"type\":\"none\"}"),
        ("payload elsewhere", "\"16777216\"", "\"16781312\""),
        ("payload of fixed size", "\"dynamic\"", "\"4096\""),
        ("key area elsewhere", "\"32768\"", "\"36864\""),
        ("no keyslot under the digest", "\"keyslots\":[\"0\"]", "\"keyslots\":[]"),
        ("other type", "\"type\":\"luks2\"", "\"type\":\"reencrypt\""),
        ("number as text", "\"stripes\":4000", "\"stripes\":\"4000\""),
        ("member twice", "\"tokens\":{}", "\"tokens\":{},\"tokens\":{}"),
        ("space", "\"tokens\":{}", "\"tokens\": {}"),
        ("escape", "\"dynamic\"", "\"d\\u0079namic\""),
        ("no JSON", "{\"keyslots\"", "{keyslots"),
    ] {
        let disk = with_json(&real.before, |json| {
            assert!(json.contains(from), "{from} is not in {json}");
            json.replacen(from, to, 1)
        });
        refusals += &format!("{what}: {}\n", refusal(&disk));
    }
    insta::assert_snapshot!(refusals);
}

#[test]
fn tells_blank_foreign_and_damaged_apart() {
    let blank = vec![0; HEADER_BYTES];
    assert_eq!(survey(&blank), Ok(DiskHead::Blank));
    assert_eq!(survey(&blank[1..]), Err(HeaderError::TooSmall));
    let with = |at: usize, bytes: &[u8]| {
        let mut disk = blank.clone();
        disk[at..at + bytes.len()].copy_from_slice(bytes);
        survey(&disk)
    };
    // ext4, btrfs, an unknown file late in the area.
    assert_eq!(with(1080, &[0x53, 0xef]), Err(HeaderError::Foreign));
    assert_eq!(with(65_600, b"_BHRfS_M"), Err(HeaderError::Foreign));
    assert_eq!(with(HEADER_BYTES - 1, &[1]), Err(HeaderError::Foreign));
    assert_eq!(with(0, b"LUKS\xba\xbe\x00\x02"), Err(HeaderError::Damaged));
    assert_eq!(with(0, b"LUKS\xba\xbe\x00\x01"), Err(HeaderError::Damaged));
    assert_eq!(with(COPY_BYTES, b"SKUL\xba\xbe\x00\x02"), Err(HeaderError::Damaged));
    assert_eq!(with(0, UNFINISHED), Ok(DiskHead::Blank));
    assert_eq!(with(1, UNFINISHED), Err(HeaderError::Foreign));
}

#[test]
fn an_unused_key_area_is_wiped_by_the_next_boot() {
    let Some(real) = REAL.as_ref() else { return };
    let mut disk = real.after.clone();
    let former = ours(&real.before).metadata.key_area();
    disk[former.clone()].copy_from_slice(&real.before[former.clone()]);
    let writes = ours(&disk).writes_onto(&disk);
    let [write] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!((write.offset, write.bytes.len()), (former.start, KEY_AREA_BYTES));
    assert!(write.bytes.iter().all(|byte| *byte == 0));
    assert_eq!(ours(&real.before).writes_onto(&real.before), []);
}

/// What a power cut leaves of these writes: some whole ones, then one of which some sectors came through.
fn cut(disk: &[u8], writes: &[Write], whole: usize, mut sector_came: impl FnMut() -> bool) -> Vec<u8> {
    let mut disk = disk.to_vec();
    for (index, write) in writes.iter().enumerate().take(whole + 1) {
        for (sector, bytes) in write.bytes.chunks(512).enumerate() {
            if index < whole || sector_came() {
                disk[write.offset + sector * 512..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_power_cut_leaves_a_header_with_its_key(whole in 0_usize..6, came: [u64; 8], first: bool) {
        let Some(real) = REAL.as_ref() else { return Ok(()) };
        let (old, new) = if first { (vec![0; HEADER_BYTES], &real.before) } else { (real.before.clone(), &real.after) };
        let goal = ours(new);
        let mut bits = came.iter().cycle().flat_map(|word| (0..64).map(move |bit| word >> bit & 1 == 1));
        let found = cut(&old, &goal.writes_onto(&old), whole, || bits.next().unwrap());
        match survey(&found) {
            Ok(DiskHead::Blank) => prop_assert!(first),
            // Either header comes with the content of its own key area.
            Ok(DiskHead::Header(header)) => {
                prop_assert!(*header == goal || (!first && *header == ours(&old)));
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
        // The next boot finishes what this one began.
        let done = cut(&found, &goal.writes_onto(&found), 6, || true);
        prop_assert_eq!(done, goal.image());
    }

    #[test]
    fn one_changed_byte_is_refused_or_changes_nothing_that_counts(at in 0..2 * COPY_BYTES, bit in 0_u32..8) {
        let Some(real) = REAL.as_ref() else { return Ok(()) };
        let mut disk = real.before.clone();
        disk[at] ^= 1 << bit;
        // A broken checksum: the other copy counts.
        prop_assert_eq!(ours(&disk).image(), real.before.clone());
        // A good one: refused, or only a salt, a name or a number changed.
        for copy in [Copy::First, Copy::Second] {
            sum(&mut disk[copy.offset()..][..COPY_BYTES]);
        }
        if let Ok(DiskHead::Header(header)) = survey(&disk) {
            prop_assert_eq!(survey(&header.image()), Ok(DiskHead::Header(header)));
        }
    }

    #[test]
    fn never_panics(json in ".{0,200}", head in proptest::collection::vec(any::<u8>(), 0..600)) {
        let Some(real) = REAL.as_ref() else { return Ok(()) };
        let _ = survey(&with_json(&real.before, |_| json.replace('\0', "")));
        let mut disk = real.before.clone();
        disk[..head.len()].copy_from_slice(&head);
        sum(&mut disk[..COPY_BYTES]);
        disk[COPY_BYTES..2 * COPY_BYTES].fill(0);
        let _ = survey(&disk);
    }
}
