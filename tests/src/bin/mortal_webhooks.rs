//! A control plane without nodes that delivers webhooks to this machine, and kills itself, as `kill -9` would, at one
//! moment of an attempt.
//!
//! Arguments: data directory, and optionally the place of its death: `moment/n`, for example `Answered/2` for the
//! second time that a request has ended and nothing is recorded. Prints one line of JSON when it is up: `api` and, at
//! the first start, `key`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cloister_control_plane::webhooks::Observer;
use cloister_control_plane::{Config, ControlPlane};
use rustix::process::{Signal, getpid, kill_process};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let data_dir = PathBuf::from(arguments.next().ok_or("a data directory is missing")?);
    let death = arguments.next().and_then(|at| at.into_string().ok());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let any = "127.0.0.1:0".parse()?;
    let mut config = Config::embedded(data_dir, any, any);
    config.webhooks.allowed = vec!["127.0.0.0/8".parse()?];
    config.webhooks.plain_http_to_allowed = true;
    config.webhook_observer = death.as_deref().map(die_at).transpose()?;
    let control_plane = ControlPlane::start(config).await?;
    let up = serde_json::json!({
        "api": format!("http://{}", control_plane.api_address()),
        "key": control_plane.first_key().map(|key| key.reveal().to_owned()),
    });
    writeln!(std::io::stdout(), "{up}")?;
    std::future::pending().await
}

/// Ends this process at a place, with no chance to clean up.
fn die_at(place: &str) -> Result<Observer, Failure> {
    let (moment, nth) = place.split_once('/').ok_or("a death is moment/n")?;
    let (moment, nth, times) = (moment.to_owned(), nth.parse::<u32>()?, AtomicU32::new(0));
    Ok(Arc::new(move |here| {
        if format!("{here:?}") == moment && times.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }))
}
