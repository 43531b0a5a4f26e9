//! A gateway from its file: started, kept in step with its files, ended when what it answers is answered.

mod parts;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloister_verifier::Clock;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::{GatewayConfig, TlsFiles};
use crate::door::{self, Certificate, CertificateError, Door};
use crate::gateway::{Gateway, Live};
use crate::observe;
use crate::operator::{Settings, SettingsError, remark};
use crate::record::Backing;
use crate::verification;

/// How long requests that were cut off may take to be recorded.
const RECORDING: Duration = Duration::from_secs(10);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file is no configuration.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The certificate of the listener is of no use.
    #[error("tls")]
    Certificate(#[from] CertificateError),
    /// An address cannot be listened at.
    #[error("cannot listen at {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// A file is not readable or holds no token.
    #[error("admin_token_file: {0} has to be a file with one line of 16 to 512 visible ASCII characters")]
    Token(PathBuf, #[source] io::Error),
    /// One of the parts does not start.
    #[error("the gateway's {0} does not start")]
    Part(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StartError {
    /// Whether it is the configuration that has to be mended, or the certificate or the operator's token that it names.
    #[must_use]
    pub const fn is_about_files(&self) -> bool {
        use CertificateError::{NoCertificate, Pem, Unfit};
        match self {
            Self::Certificate(error) => matches!(error, Pem(..) | NoCertificate(_) | Unfit(_)),
            Self::Settings(_) | Self::Token(..) => true,
            Self::Listen(..) | Self::Part(..) => false,
        }
    }
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Running {
    gateway: Arc<Gateway>,
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    look_again: Arc<Notify>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// The listener's certificate, with its files unless the gateway makes it.
#[derive(Debug, Clone)]
struct Tls {
    files: Option<TlsFiles>,
    certificate: Arc<Certificate>,
}

impl Tls {
    async fn of(config: &GatewayConfig) -> Result<Option<Self>, CertificateError> {
        let Some(tls) = &config.tls else { return Ok(None) };
        let files = tls.files();
        let certificate = match &files {
            Some(files) => Certificate::load(files)?,
            None => Certificate::self_signed(config.agent_socket.as_deref()).await?,
        };
        Ok(Some(Self { files, certificate: Arc::new(certificate) }))
    }
}

/// Starts a gateway and returns when it serves.
pub async fn start(file: &Path) -> Result<Running, StartError> {
    start_on(file, Backing::file(), Clock::system()).await
}

/// The same with records elsewhere than in files, and another clock for keys, records and verifications.
pub(crate) async fn start_on(file: &Path, backing: Backing, clock: Clock) -> Result<Running, StartError> {
    let (settings, config) = Settings::load(file)?;
    let tls = Tls::of(&config).await?;
    let (listener, address) = listen(config.bind).await?;
    let metrics = match config.metrics_bind {
        None => None,
        Some(bind) => Some(listen(bind).await?),
    };
    let parts = parts::Parts::start(&config, tls.as_ref(), backing, &clock).await?;
    let live = Live::new(config, None).map_err(SettingsError::from)?;
    let gateway = Arc::new(parts.gateway(live));
    parts::Prepared::read(&gateway.live().config)?.hold(&gateway);
    settings.hold().await;
    remark(&gateway.live().config);
    gateway.office.set_settings(settings);
    let (stop, look_again) = (CancellationToken::new(), Arc::new(Notify::new()));
    let certificate = tls.as_ref().map(|tls| Arc::clone(&tls.certificate));
    let door = Door::new(Arc::clone(&gateway));
    let mut tasks = vec![
        tokio::spawn(door::serve(listener, certificate, door, stop.clone())),
        tokio::spawn(verification::run(Arc::clone(&gateway), stop.clone())),
        tokio::spawn(watch::Watch::new(Arc::clone(&gateway), tls).run(Arc::clone(&look_again), stop.clone())),
    ];
    let (looking, stopped) = (Arc::clone(&gateway), stop.clone());
    tasks.push(tokio::spawn(async move { looking.busy_poll.run(stopped).await }));
    let (owing, stopped) = (Arc::clone(&gateway), stop.clone());
    tasks.push(tokio::spawn(async move { owing.arrears.run(&owing.store, stopped).await }));
    let metrics_address = metrics.as_ref().map(|(_, address)| *address);
    if let Some((listener, _)) = metrics {
        let router = observe::open_routes(Arc::clone(&gateway));
        tasks.push(tokio::spawn(door::serve(listener, None, router, stop.clone())));
    }
    Ok(Running { gateway, address, metrics_address, look_again, stop, tasks })
}

async fn listen(bind: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen(bind, error);
    let listener = TcpListener::bind(bind).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it tells figures to anybody, if it does.
    #[must_use]
    pub const fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Its parts, for tests that look at what it recorded.
    #[cfg(test)]
    pub(crate) const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Looks at its files again, now.
    pub fn reload(&self) {
        self.look_again.notify_one();
    }

    /// Ends it: nothing new is begun, what is under way gets so long, or until it is `urgent`, and is then ended. Every
    /// request is recorded.
    pub async fn stop(mut self, patience: Duration, urgent: impl Future<Output = ()>) {
        self.gateway.begin_draining();
        self.gateway.requests.close();
        let (requests, seconds) = (self.gateway.requests.len(), patience.as_secs());
        tracing::info!(
            requests,
            seconds,
            "the gateway ends when its requests are answered, or after these seconds"
        );
        let is_over = tokio::select! {
            over = timeout(patience, self.gateway.requests.wait()) => over.is_ok(),
            () = urgent => false,
        };
        if !is_over {
            tracing::warn!("requests that are still under way are cut off");
            self.cut_off().await;
        }
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            let _ = task.await;
        }
        // Nothing comes any more; what came in the last moment is over, too.
        self.cut_off().await;
        self.gateway.arrears.close(&self.gateway.store, RECORDING).await;
        if let Some(traces) = &self.gateway.traces {
            traces.close().await;
        }
        tracing::info!("the gateway has ended");
    }

    async fn cut_off(&self) {
        self.gateway.cut.cancel();
        if timeout(RECORDING, self.gateway.requests.wait()).await.is_err() {
            tracing::error!("requests that are still under way end without a record");
        }
    }
}
