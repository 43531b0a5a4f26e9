//! `wrk`, asked to say what it saw in numbers.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::Failure;
use crate::process::Process;

/// A chat of about 100 bytes.
pub(crate) const BODY: &str =
    r#"{"model":"bench","messages":[{"role":"user","content":"Say something that takes a few words."}]}"#;

/// Prints requests, microseconds, failures, late ones, and percentiles in microseconds.
const DONE: &str = r#"
done = function(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status
  print(string.format("SEEN %d %d %d %d %d %d", summary.requests, summary.duration, failed,
    errors.timeout, latency:percentile(50), latency:percentile(99)))
end
"#;
/// In seconds. A request without an answer by then is late: `wrk` goes on waiting, and looks as seldom.
pub(crate) const PATIENCE_S: u32 = 10;

/// What is sent.
pub(crate) struct Load<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) to: &'a Process,
    pub(crate) connections: u32,
    pub(crate) duration: Duration,
    /// What each connection waits before it asks again.
    pub(crate) pause: Duration,
}

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) requests: f64,
    seconds: f64,
    pub(crate) failed: f64,
    /// Without an answer after [`PATIENCE_S`].
    pub(crate) late: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Seen {
    /// Fails if a request failed or was late.
    pub(crate) fn all_answered(self) -> Result<Self, Failure> {
        let Self { requests, failed, late, .. } = self;
        if failed + late > 0.0 {
            return Err(format!("of {requests} requests {failed} failed and {late} were late").into());
        }
        Ok(self)
    }

    pub(crate) fn rate(&self) -> f64 {
        self.requests / self.seconds
    }

    pub(crate) fn p50_ms(&self) -> f64 {
        self.p50_us / 1e3
    }

    pub(crate) fn p99_ms(&self) -> f64 {
        self.p99_us / 1e3
    }
}

impl Load<'_> {
    pub(crate) async fn run(&self) -> Result<Seen, Failure> {
        let script = self.directory.join("load.lua");
        let Process { address, path, body, headers, .. } = self.to;
        let post = body.map(|body| format!("wrk.method = 'POST'\nwrk.body = '{body}'\n"));
        // Whoever has this function waits, if for nothing, too.
        let pause = (!self.pause.is_zero())
            .then(|| format!("function delay() return {} end\n", self.pause.as_millis()));
        std::fs::write(
            &script,
            [post, pause, Some(DONE.to_owned())].into_iter().flatten().collect::<String>(),
        )?;
        let mut command = Command::new("wrk");
        command.args(["--threads", "1", "--connections", &self.connections.to_string()]);
        command.args([
            "--duration",
            &format!("{}s", self.duration.as_secs()),
            "--timeout",
            &format!("{PATIENCE_S}s"),
        ]);
        command.arg("--script").arg(&script);
        for (name, value) in headers {
            command.arg("--header").arg(format!("{name}: {value}"));
        }
        command.args(["--header", "content-type: application/json"]);
        let output = command.arg(format!("http://{address}{path}")).output().await.map_err(|error| {
            format!("wrk cannot be run; scripts/install-dependencies.sh test installs it: {error}")
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers = text.lines().find_map(|line| line.strip_prefix("SEEN "));
        let numbers: Vec<f64> =
            numbers.ok_or_else(|| format!("wrk said: {text}"))?.split(' ').flat_map(str::parse).collect();
        match numbers.as_slice() {
            &[requests, micros, failed, late, p50_us, p99_us] => {
                Ok(Seen { requests, seconds: micros / 1e6, failed, late, p50_us, p99_us })
            }
            _ => Err(format!("wrk said: {text}").into()),
        }
    }
}
