use proptest::prelude::*;

use super::*;

fn draft(value: &Value) -> Draft {
    decode::decode(value, Source::Json, &["body", "compose_file"]).unwrap()
}

fn minimal() -> Value {
    json!({"name": "", "docker_compose_file": "services: {web: {image: nginx}}"})
}

fn with(member: &str, value: Value) -> Value {
    let mut document = minimal();
    document[member] = value;
    document
}

fn prepare(value: &Value) -> Result<AppCompose, ComposeError> {
    draft(value).prepare(&Additions { name: "my-app", ..Additions::default() })
}

#[test]
fn preparing_writes_the_defaults_of_the_service() {
    let compose = prepare(&minimal()).unwrap();
    insta::assert_snapshot!(String::from_utf8(compose.bytes().to_vec()).unwrap());
    assert_eq!(compose.compose_hash(), ComposeHash::of(compose.bytes()));
    assert_eq!(compose.members().name, "my-app");
}

#[test]
fn the_request_adds_but_does_not_overrule() {
    let document = with("allowed_envs", json!(["A"]));
    let additions = Additions {
        name: "other",
        env_keys: &["A".into(), "B".into()],
        secure_time: Some(true),
        storage_fs: Some(StorageFs::Ext4),
    };
    let members = draft(&document).prepare(&additions).unwrap().members;
    assert_eq!(members.allowed_envs, ["A", "B"]);
    assert_eq!((members.secure_time, members.storage_fs), (true, StorageFs::Ext4));
    let members = draft(&with("storage_fs", json!("zfs"))).prepare(&additions).unwrap().members;
    assert_eq!(members.storage_fs, StorageFs::Zfs);
}

#[test]
fn the_two_names_of_the_gateway_switch_agree_afterwards() {
    for (gateway, tproxy, expected) in
        [(None, Some(false), false), (Some(true), Some(false), true), (Some(false), Some(true), false)]
    {
        let mut document = minimal();
        document["gateway_enabled"] = json!(gateway);
        document["tproxy_enabled"] = json!(tproxy);
        let compose = prepare(&document).unwrap();
        assert_eq!(compose.document()["gateway_enabled"], json!(expected));
        assert_eq!(compose.document()["tproxy_enabled"], json!(expected));
    }
}

#[test]
fn unused_programs_and_empty_scripts_are_dropped_and_unknown_members_kept() {
    let mut document = with("bash_script", json!("echo"));
    document["pre_launch_script"] = json!("");
    document["x_unknown"] = json!({"b": null, "a": 1});
    let compose = prepare(&document).unwrap();
    assert!(!compose.document().contains_key("bash_script"));
    assert!(!compose.document().contains_key("pre_launch_script"));
    assert_eq!(compose.document()["x_unknown"].to_string(), r#"{"a":1,"b":null}"#);
    document["runner"] = json!("bash");
    let compose = prepare(&document).unwrap();
    assert_eq!(compose.program(), Some("echo"));
    assert!(!compose.document().contains_key("docker_compose_file"));
}

#[test]
fn wrong_types_are_faults_with_their_place() {
    let mut document = with("allowed_envs", json!(["A", 1]));
    document["public_logs"] = json!("yes");
    document["runner"] = json!("perl");
    document["storage_fs"] = json!("ntfs");
    let faults: Vec<_> = decode::decode::<Draft>(&document, Source::Json, &["body", "compose_file"])
        .unwrap_err()
        .into_iter()
        .map(|fault| format!("{}: {} ({})", fault.loc.join("."), fault.msg, fault.kind))
        .collect();
    insta::assert_snapshot!(faults.join("\n"));
    let faults = decode::decode::<Draft>(&json!({}), Source::Json, &["body"]).unwrap_err();
    assert_eq!(faults[0].loc, ["body", "name"]);
}

#[test]
fn what_cannot_run_is_refused_with_a_reason() {
    let cases = [
        with("docker_compose_file", json!(null)),
        with("docker_compose_file", json!(" \n")),
        with("docker_compose_file", json!("services: {}")),
        with("manifest_version", json!(3)),
        with("allowed_envs", json!(["A=B"])),
        with("runner", json!("bash")),
    ];
    let refusals: Vec<_> = cases.iter().map(|document| prepare(document).unwrap_err().to_string()).collect();
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn the_size_limit_counts_bytes_of_program_and_script_together() {
    let program = "services: {web: {image: nginx}} # ä";
    let script = "#".repeat(MAX_COMBINED_BYTES - program.len());
    let mut document = with("docker_compose_file", json!(program));
    document["pre_launch_script"] = json!(script);
    assert!(prepare(&document).is_ok());
    document["pre_launch_script"] = json!(format!("{script}#"));
    assert_eq!(prepare(&document), Err(ComposeError::TooLarge(MAX_COMBINED_BYTES + 1)));
}

#[test]
fn the_platform_example_keeps_its_identity() {
    let bytes = include_bytes!("example.json");
    let compose = AppCompose::parse(bytes).unwrap();
    assert_eq!(
        compose.compose_hash().to_string(),
        "6f809b3214eb9a69571ad008289d9551fa9a4272ffa8f7ad7440e5177d2fec85"
    );
    let value = Value::Object(compose.document().clone());
    assert_eq!(canonical::compact(&value), bytes);
    let mut normalised = compose.document().clone();
    normalised.remove("pre_launch_script");
    assert_eq!(
        ComposeHash::of(&canonical::compact(&Value::Object(normalised))).to_string(),
        "6dcc9bf477786830e3b05a2e0726c5a984d500dbf4c97f3550da6d7db860d00d"
    );
}

#[test]
fn a_change_of_members_keeps_all_others() {
    let mut document = with("x_unknown", json!({"b": [1, {"a": null}]}));
    document["pre_launch_script"] = json!("echo");
    document["salt"] = json!("s");
    let compose = prepare(&document).unwrap();
    assert_eq!(compose.with([]).unwrap().bytes(), compose.bytes());
    assert_eq!(compose.with([("salt", json!("s"))]).unwrap().bytes(), compose.bytes());

    let changes = [("pre_launch_script", json!("")), ("salt", Value::Null), ("public_logs", json!(false))];
    let after = compose.with(changes).unwrap();
    let mut expected = compose.document().clone();
    expected.remove("pre_launch_script");
    expected.remove("salt");
    expected["public_logs"] = json!(false);
    assert_eq!(*after.document(), expected);
    assert_eq!(after.bytes(), canonical::compact(&Value::Object(expected)));

    for (member, value) in [
        ("docker_compose_file", json!("")),
        ("docker_compose_file", json!("services: {")),
        ("allowed_envs", json!(["A=B"])),
        ("pre_launch_script", json!("#".repeat(MAX_COMBINED_BYTES))),
        ("name", Value::Null),
    ] {
        assert!(compose.with([(member, value.clone())]).is_err(), "{member}");
    }
}

#[test]
fn a_document_is_found_in_each_form_by_its_hash() {
    let mut document = prepare(&minimal()).unwrap().document().clone();
    document["docker_compose_file"] = json!("services: {web: {image: nginx, labels: {\"a\": b}}}");
    document.insert("pre_launch_script".into(), json!(""));
    document.insert("bash_script".into(), json!("unused"));
    let mut hashed = document.clone();
    drop_unused(&mut hashed);
    let hashed = Value::Object(hashed);
    let draft = draft(&Value::Object(document));
    for bytes in [canonical::compact(&hashed), canonical::indented(&hashed)] {
        let found = draft.with_hash(ComposeHash::of(&bytes), &Additions::default()).unwrap().unwrap();
        assert_eq!(found.bytes(), bytes);
    }
    assert_eq!(draft.with_hash(ComposeHash::of(b"other"), &Additions::default()), Ok(None));
}

#[test]
fn a_document_is_found_by_the_hash_that_preparing_it_gave() {
    let additions = Additions { name: "my-app", ..Additions::default() };
    let prepared = prepare(&minimal()).unwrap();
    let found = draft(&minimal()).with_hash(prepared.compose_hash(), &additions);
    assert_eq!(found, Ok(Some(prepared)));
    // What is as it was sent must stand for itself.
    let sent = ComposeHash::of(&canonical::compact(&minimal()));
    assert!(matches!(draft(&minimal()).with_hash(sent, &additions), Err(ComposeError::Members(_))));
}

proptest! {
    #[test]
    fn changes_one_after_the_other_are_changes_at_once(
        script in "[a-z\": ]{0,12}", envs in proptest::collection::vec("[A-Z]{1,5}", 0..5), logs: bool,
    ) {
        let compose = prepare(&with("x_unknown", json!([1.5, "ä", null]))).unwrap();
        let changes = [
            ("pre_launch_script", json!(script)), ("allowed_envs", json!(envs)), ("public_logs", json!(logs)),
        ];
        let at_once = compose.with(changes.clone()).unwrap();
        let mut stepwise = compose.clone();
        for change in changes {
            stepwise = stepwise.with([change]).unwrap();
        }
        prop_assert_eq!(at_once.bytes(), stepwise.bytes());
        prop_assert_eq!(&stepwise.document()["x_unknown"], &compose.document()["x_unknown"]);
        prop_assert_eq!(AppCompose::parse(stepwise.bytes()).unwrap().compose_hash(), at_once.compose_hash());
    }

    #[test]
    fn parsing_never_panics_and_keeps_the_bytes(text in r#"[{}\[\]":,a-z0-9 \\]{0,200}"#) {
        if let Ok(compose) = AppCompose::parse(text.as_bytes()) {
            prop_assert_eq!(compose.bytes(), text.as_bytes());
        }
    }

    #[test]
    fn preparing_twice_changes_nothing(name in "[a-z]{0,8}", envs in proptest::collection::vec("[A-Z]{1,5}", 0..5), logs: Option<bool>) {
        let mut document = with("allowed_envs", json!(envs));
        document["name"] = json!(name);
        document["public_logs"] = json!(logs);
        let once = prepare(&document).unwrap();
        let again = prepare(&Value::Object(once.document().clone())).unwrap();
        prop_assert_eq!(once.bytes(), again.bytes());
    }
}
