//! Connections that ask for keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cloister_kms_api::method;
use cloister_ra_tls::{AttestedCertificate, AttestedKey, AuthorityConnector, AuthorityPolicy};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::Outcome;
use crate::machine::{Machine, evidence_of};

/// A key with its certificate, and what its machine says.
pub(crate) struct Holder {
    pub(crate) key: AttestedKey,
    pub(crate) certificate: AttestedCertificate,
    pub(crate) vm_config: String,
}

impl Holder {
    /// Of a machine whose evidence nobody verifies.
    pub(crate) fn plain() -> Outcome<Self> {
        let key = AttestedKey::generate()?;
        let machine = Machine::new();
        let certificate = evidence_of(&machine, &key, vec![0; 5000])?;
        Ok(Self { key, certificate, vm_config: machine.vm_config()? })
    }
}

/// One connection; cheap to clone.
#[derive(Clone)]
pub(crate) struct Caller {
    sender: Arc<Mutex<SendRequest<Full<Bytes>>>>,
    body: Bytes,
}

impl Caller {
    pub(crate) async fn connect(address: SocketAddr, holder: &Holder) -> Outcome<Self> {
        let own = Some((&holder.key, &holder.certificate));
        let connector = AuthorityConnector::new(AuthorityPolicy::kms(None), own, &[], Timestamp::now)?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (stream, _) = connector.connect(ServerName::try_from("kms.example")?, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let body = serde_json::json!({"name": "disk/backup", "vm_config": holder.vm_config});
        Ok(Self { sender: Arc::new(Mutex::new(sender)), body: serde_json::to_vec(&body)?.into() })
    }

    /// One key.
    pub(crate) async fn ask(&self) -> Outcome<()> {
        let request = Request::post(method::KEY)
            .header("host", "kms.example")
            .header("content-type", "application/json")
            .body(Full::new(self.body.clone()))?;
        let mut sender = self.sender.lock().await;
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status != 200 || body.len() != 32 {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(())
    }
}

/// All together ask at this rate; how long each answer took, sorted, from the moment at which it was due.
pub(crate) async fn at_rate(callers: &[Caller], rate: f64, time: Duration) -> Outcome<Vec<Duration>> {
    let pace = Duration::from_secs_f64(callers.len() as f64 / rate);
    let begin = Instant::now();
    let counter = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let many = u32::try_from(callers.len())?;
    let times = each(callers, move |caller| {
        let counter = Arc::clone(&counter);
        async move {
            let offset = pace * counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed) / many;
            let (mut due, mut times) = (begin + offset, Vec::new());
            while due < begin + time {
                tokio::time::sleep_until(due.into()).await;
                caller.ask().await?;
                times.push(due.elapsed());
                due += pace;
            }
            Ok(times)
        }
    })
    .await?;
    let mut times: Vec<_> = times.into_iter().flatten().collect();
    times.sort_unstable();
    Ok(times)
}

/// A percentile of sorted times, in milliseconds.
pub(crate) fn percentile(times: &[Duration], share: usize) -> f64 {
    times.get(times.len().saturating_sub(1) * share / 100).map_or(f64::NAN, Duration::as_secs_f64) * 1e3
}

async fn each<T: Send + 'static, F>(callers: &[Caller], work: impl Fn(Caller) -> F) -> Outcome<Vec<T>>
where
    F: Future<Output = Outcome<T>> + Send + 'static,
{
    let tasks: Vec<_> = callers.iter().map(|caller| tokio::spawn(work(caller.clone()))).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await??);
    }
    Ok(done)
}
