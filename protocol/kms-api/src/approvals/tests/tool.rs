//! The real `ssh-keygen`: what it signs is an approval here, and what is one here is a signature to it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::people::Person;
use super::statement;
use crate::approvals::{NAMESPACE, Owners, verify};

fn ssh_keygen(dir: &Path, arguments: &[&str]) {
    let done = Command::new("ssh-keygen").current_dir(dir).args(arguments).output();
    let done = done.expect("ssh-keygen is missing; scripts/install-dependencies.sh test installs it");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn what_the_tool_signs_is_an_approval() {
    let dir = tempfile::tempdir().unwrap();
    let (mut keys, mut signatures) = (Vec::new(), Vec::new());
    fs::write(dir.path().join("statement"), statement().to_string()).unwrap();
    for (kind, hash) in [("ed25519", "sha512"), ("ecdsa", "sha256")] {
        ssh_keygen(dir.path(), &["-q", "-t", kind, "-N", "", "-C", "me@example.org", "-f", kind]);
        let hash = format!("hashalg={hash}");
        ssh_keygen(dir.path(), &["-Y", "sign", "-n", NAMESPACE, "-O", &hash, "-f", kind, "statement"]);
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        keys.push(read(&format!("{kind}.pub")).parse().unwrap());
        signatures.push(read("statement.sig"));
        fs::remove_file(dir.path().join("statement.sig")).unwrap();
    }
    let owners = Owners::new(2, keys).unwrap();
    assert_eq!(verify(&statement(), &owners, &signatures).unwrap().len(), 2);
    verify(&statement(), &owners, &signatures[..1]).unwrap_err();
}

#[test]
fn the_tool_verifies_what_counts_here() {
    let dir = tempfile::tempdir().unwrap();
    for person in [Person::ed25519(1), Person::p256(2), Person::hardware(3)] {
        fs::write(dir.path().join("signers"), format!("me {}\n", person.key())).unwrap();
        fs::write(dir.path().join("signature"), person.sign(&statement())).unwrap();
        fs::write(dir.path().join("statement"), statement().to_string()).unwrap();
        let text = fs::File::open(dir.path().join("statement")).unwrap();
        let verified = Command::new("ssh-keygen")
            .current_dir(dir.path())
            .args(["-Y", "verify", "-f", "signers", "-I", "me", "-n", NAMESPACE, "-s", "signature"])
            .stdin(Stdio::from(text))
            .output()
            .unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
        let said = String::from_utf8(verified.stdout).unwrap();
        assert!(said.contains(&person.key().fingerprint()), "{said}");
    }
}
