//! Any text, its first line a key and the rest a signature: a key is read again the same, and nothing that was
//! not signed with one of the owners' keys approves anything.
#![no_main]

use cloister_kms_api::approvals::{Action, ApprovalStatement, OwnerKey, Owners, verify};

const OWNER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (line, signature) = text.split_once('\n').unwrap_or((text, text));
    let mut keys: Vec<OwnerKey> = vec![OWNER.parse().unwrap()];
    if let Ok(key) = line.parse::<OwnerKey>() {
        assert_eq!(key.to_string().parse().as_ref(), Ok(&key));
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let owners = Owners::new(1, keys).unwrap();
    let read: Owners = serde_json::from_str(&serde_json::to_string(&owners).unwrap()).unwrap();
    assert_eq!(read, owners);
    let statement = ApprovalStatement {
        app_id: "01".repeat(20).parse().unwrap(),
        action: Action::SetOwners(owners.digest()),
        serial: 1,
    };
    assert!(verify(&statement, &owners, &[signature]).is_err());
});
