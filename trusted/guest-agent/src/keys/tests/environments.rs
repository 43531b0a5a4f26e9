use std::fs;
use std::io;
use std::path::Path;

use cloister_sealed_env::{Environment, public_key, seal, seal_bytes};

use crate::failure;
use crate::keys::environment::{EnvironmentError, unseal};
use crate::keys::{AppKeys, material};

/// Keys under these versions of the root, newest first.
fn keys(versions: &[u32]) -> AppKeys {
    AppKeys::from_answer(&material::testing::answer(versions)).unwrap()
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::from)
}

fn environment() -> Environment {
    Environment::from_pairs([("API_KEY", "s3cr3t"), ("EMPTY", "")]).unwrap()
}

/// What a deployer sends who got the key of this version of the root.
fn sealed_under(version: u32) -> Vec<u8> {
    let recipient = public_key(keys(&[version]).current().env_key());
    seal(&recipient, &environment(), &mut random).unwrap()
}

fn opened(blob: &[u8], versions: &[u32], data: &Path) -> Result<Environment, EnvironmentError> {
    unseal(Some(blob), Some(&keys(versions)), data, &mut random)
}

fn copies(data: &Path) -> usize {
    fs::read_dir(data.join("sealed-environment")).map_or(0, Iterator::count)
}

#[test]
fn an_environment_outlives_the_root_it_was_sealed_under() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let blob = sealed_under(1);
    for (versions, copies_then) in [
        (&[1][..], 0),
        // The root was rotated; the node still has what the deployer sent.
        (&[2, 1], 1),
        (&[2, 1], 1),
        // The first root is retired.
        (&[2], 1),
        // Rotated again and retired again.
        (&[3, 2], 1),
        (&[3], 1),
    ] {
        assert_eq!(opened(&blob, versions, data).unwrap(), environment(), "{versions:?}");
        assert_eq!(copies(data), copies_then, "{versions:?}");
    }
    // Who never booted in between lost it.
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(matches!(opened(&blob, &[3], elsewhere.path()), Err(EnvironmentError::Open(_))));
}

#[test]
fn a_new_environment_replaces_the_copy_of_an_old_one() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    opened(&sealed_under(1), &[2, 1], data).unwrap();
    assert_eq!(copies(data), 1);
    opened(&sealed_under(1), &[2, 1], data).unwrap();
    assert_eq!(copies(data), 1);
    opened(&sealed_under(2), &[2, 1], data).unwrap();
    assert_eq!(copies(data), 0);
    opened(&sealed_under(1), &[2, 1], data).unwrap();
    assert_eq!(unseal(None, Some(&keys(&[2])), data, &mut random).unwrap(), Environment::default());
    assert_eq!(copies(data), 0);
}

/// A power cut may leave the copy unfinished beside its place, and a disk may rot.
#[test]
fn a_damaged_copy_is_made_anew_while_that_is_possible() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let blob = sealed_under(1);
    opened(&blob, &[2, 1], data).unwrap();
    let directory = data.join("sealed-environment");
    let copy = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    fs::write(copy.with_extension("new"), "half").unwrap();
    fs::write(&copy, "rotten").unwrap();
    assert_eq!(opened(&blob, &[2, 1], data).unwrap(), environment());
    assert_eq!(opened(&blob, &[2], data).unwrap(), environment());
    assert_eq!(copies(data), 1);
    fs::write(&copy, "rotten").unwrap();
    assert!(matches!(opened(&blob, &[2], data), Err(EnvironmentError::Open(_))));
}

#[test]
fn what_cannot_be_opened_says_so_and_nothing_of_its_contents() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let recipient = public_key(keys(&[1]).current().env_key());
    let plain = |text: &str| seal_bytes(&recipient, text.as_bytes(), &mut random).unwrap();
    let mut changed = sealed_under(1);
    *changed.last_mut().unwrap() ^= 1;
    let blobs = [
        vec![],
        vec![0; 100],
        changed,
        sealed_under(2),
        plain("s3cr3t"),
        plain(r#"{"env":[{"key":"s3cr3t name","value":"s3cr3t"}]}"#),
    ];
    let mut told: Vec<_> =
        blobs.iter().map(|blob| failure::chain(&opened(blob, &[1], data).unwrap_err())).collect();
    told.push(failure::chain(&unseal(Some(&sealed_under(1)), None, data, &mut random).unwrap_err()));
    assert!(!told.join("").contains("s3cr3t"));
    insta::assert_snapshot!(told.join("\n"));
    assert_eq!(copies(data), 0);
}

#[test]
fn there_may_be_none() {
    let data = tempfile::tempdir().unwrap();
    for keys in [None, Some(keys(&[1]))] {
        let none = unseal(None, keys.as_ref(), data.path(), &mut random).unwrap();
        assert!(none.is_empty());
    }
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
}
