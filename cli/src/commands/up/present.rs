//! What a person, or a program, is told of a cloud that is up.

use serde_json::{Value, json};

use super::DEFAULT_HTTPS;
use super::cloud::Cloud;
use super::example::Running;
use crate::credentials::{ApiKey, Credentials};
use crate::output::Output;
use crate::parts::control_plane::Access;
use crate::parts::development_chain::{self, ChainPart};
use crate::parts::inference::Place;
use crate::parts::{Home, kms};
use crate::places::{data_dir, login_credentials};

/// A cloud that is up.
pub(super) struct Standing<'a> {
    pub(super) home: &'a Home,
    pub(super) access: &'a Access,
    pub(super) app: Option<&'a Running>,
    /// The key for the inference gateway, and whether nobody has seen it yet.
    pub(super) key: Option<&'a (ApiKey, bool)>,
    pub(super) cloud: &'a Cloud,
}

impl Standing<'_> {
    pub(super) fn show(&self, output: &Output) {
        if output.json {
            output.document(&self.document());
        } else {
            self.present(output);
        }
    }

    fn document(&self) -> Value {
        let Self { home, access, app, cloud, .. } = self;
        json!({
            "api_url": access.server, "credentials": home.credentials(), "https_port": cloud.https_port(),
            "kms_url": cloud.kms_directory, "kms_root": home.join(kms::DIRECTORY).join(kms::ROOT_FILE),
            "app_url": app.map(Running::url), "cvm": app.map(|app| &app.cvm),
            "inference": {
                "base_url": cloud.inference.base_url, "model": cloud.inference.model,
                "key_file": cloud.inference.key_file, "config": cloud.inference.config,
            },
            "chain": cloud.chain().map(described),
        })
    }

    fn present(&self, output: &Output) {
        let Self { home, access, cloud, .. } = self;
        let program = self.program();
        let api_key = secret(&access.key, access.first, &home.credentials().display().to_string());
        let inference_key = self
            .key
            .zip(cloud.inference.key_file.as_ref())
            .map(|((key, is_new), file)| secret(key, *is_new, &file.display().to_string()));
        output.say("");
        output.fields(&[
            ("App URL", self.app.map(|app| app.url().to_owned())),
            ("API URL", Some(access.server.to_string())),
            ("API key", Some(api_key)),
            ("Inference", Some(models(&cloud.inference))),
            ("Inference key", inference_key),
            ("KMS directory", Some(cloud.kms_directory.clone())),
            (
                "Chain",
                cloud.chain().map(|chain| format!("{} (development: its keys are public)", chain.rpc_url())),
            ),
            ("KMS contract", cloud.chain().map(|chain| chain.kms_contract().to_string())),
            ("Owner's key", cloud.chain().map(|chain| chain.owner_key().display().to_string())),
        ]);
        output.say("\nTry, in another terminal:");
        if let Some(app) = self.app {
            output.say(&format!("  curl {}", app.url()));
            output.say(&format!("  {program} cvms logs {} --serial", app.cvm));
        }
        output.say(&format!("  {program} cvms list"));
        output.say(&format!("  {program} deploy -c compose.yaml -n my-app"));
        if let Some(line) = question(&cloud.inference) {
            output.say(&format!("  {line}"));
        }
        output.say(&format!("  eval \"$({program} env)\"    # then any client of the public API"));
        if let Some(app) = self.app {
            let port = match cloud.https_port() {
                port if port == DEFAULT_HTTPS.port() => String::new(),
                port => format!(" --https-port {port}"),
            };
            output.say(&format!(
                "  {program} verify {}{port}    # after the line above: what this CVM proves",
                app.cvm
            ));
        }
        self.say_of_contracts(&program, output);
        if let Some(elsewhere) = logged_in_elsewhere(access) {
            output.say(&format!(
                "\nCommands go to {elsewhere} by `cloister login`; add --api-url {}",
                access.server
            ));
        }
        output.say("\nCtrl-C stops the cloud; its data stays for the next start.");
    }

    fn say_of_contracts(&self, program: &str, output: &Output) {
        let Some(chain) = self.cloud.chain() else { return };
        let key = chain.owner_key().display().to_string();
        let cvm = self.app.map_or("my-app", |app| app.cvm.as_str());
        output.say("\nUnder a contract, nothing new runs before its owner has allowed it:");
        output.say(&format!(
            "  {program} deploy -c compose.yaml -n my-app --kms {} --key-file {key}",
            development_chain::SLUG
        ));
        output
            .say(&format!("  {program} update {cvm} -c compose.yaml    # says what the owner has to allow"));
        output.say(&format!("  {program} update {cvm} -c compose.yaml --key-file {key}    # as the owner"));
    }

    /// This command, with the directory of this cloud where that is not the usual one.
    fn program(&self) -> String {
        let program = std::env::args().next().unwrap_or_else(|| "cloister".to_owned());
        if data_dir().is_ok_and(|usual| usual == self.home.path()) {
            return program;
        }
        format!("{program} --data-dir {}", self.home.path().display())
    }
}

fn described(chain: &ChainPart) -> Value {
    json!({
        "chain_id": chain.config().chain_id, "rpc_url": chain.rpc_url(),
        "kms_contract": chain.kms_contract().to_string(), "kms": development_chain::SLUG,
        "owner_key": chain.owner_key(), "operator_key": chain.operator_key(),
    })
}

/// A key that nobody has seen yet is shown, once.
fn secret(key: &ApiKey, is_new: bool, file: &str) -> String {
    if is_new {
        format!("{} (shown only now; kept in {file})", key.reveal())
    } else {
        format!("kept in {file}")
    }
}

fn models(place: &Place) -> String {
    match &place.own {
        Some(own) => format!("{} (an echo, no model; models of yours: {})", place.base_url, own.display()),
        None => format!("{} (models of {})", place.base_url, place.config.display()),
    }
}

/// A first question. The key comes from its file through a pipe: other users of a machine can read command lines.
fn question(place: &Place) -> Option<String> {
    let (model, key) = (place.model?, place.key_file.as_ref()?.display());
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }] });
    Some(format!(
        "sed 's/^/Authorization: Bearer /' {key} | curl -H @- {}/chat/completions --json '{body}'",
        place.base_url
    ))
}

/// The server that commands use instead of this cloud, if somebody logged in to one.
fn logged_in_elsewhere(access: &Access) -> Option<String> {
    let credentials = Credentials::load(&login_credentials().ok()?).ok()?;
    credentials.current().filter(|server| **server != access.server).map(ToString::to_string)
}
