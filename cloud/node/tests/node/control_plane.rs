//! A control plane that takes reports, certifies platforms and has guest images.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use cloister_app_compose::OsImageHash;
use cloister_development_tee::{Registration, Vendor};
use cloister_fleet_tls::{Authority, Identity, Peer, TlsListener, server_config};
use cloister_node_api::{
    NodeReport, PlatformCertificate, PlatformRequest, ReportReceipt, Routes, VmRoute, paths,
};
use futures_util::stream;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::support::{credentials, now_since_epoch};

/// What a control plane has for its nodes.
#[derive(Clone, Default)]
pub(crate) struct Catalogue {
    images: Arc<Mutex<HashMap<OsImageHash, Entry>>>,
    routes: Arc<Mutex<Vec<VmRoute>>>,
}

struct Entry {
    archive: Vec<u8>,
    /// Bytes after which the next stream breaks off.
    breaks_after: Option<usize>,
    asked: usize,
}

impl Catalogue {
    /// Offers an archive under a hash; the first stream of it breaks off if `breaks_after` says where.
    pub(crate) fn offer(&self, hash: OsImageHash, archive: Vec<u8>, breaks_after: Option<usize>) {
        self.images.lock().unwrap().insert(hash, Entry { archive, breaks_after, asked: 0 });
    }

    /// How often an image was asked for.
    pub(crate) fn asked(&self, hash: OsImageHash) -> usize {
        self.images.lock().unwrap()[&hash].asked
    }

    /// Says where every app runs.
    pub(crate) fn say_where(&self, routes: Vec<VmRoute>) {
        *self.routes.lock().unwrap() = routes;
    }

    fn names(&self) -> Vec<OsImageHash> {
        let mut names: Vec<_> = self.images.lock().unwrap().keys().copied().collect();
        names.sort_by_key(ToString::to_string);
        names
    }

    fn stream(&self, hash: OsImageHash) -> Option<Body> {
        let mut entries = self.images.lock().unwrap();
        let entry = entries.get_mut(&hash)?;
        entry.asked += 1;
        let whole = Bytes::from(entry.archive.clone());
        Some(match entry.breaks_after.take() {
            None => Body::from(whole),
            Some(length) => {
                let torn = [Ok(whole.slice(..length)), Err(std::io::Error::other("torn"))];
                Body::from_stream(stream::iter(torn))
            }
        })
    }
}

/// A tar archive of the files of a directory, with plain names.
pub(crate) fn archive(dir: &Path) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let contents = std::fs::read(entry.path()).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, entry.file_name(), &*contents).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Listens for nodes and tells the last report.
pub(crate) async fn listen(
    authority: &Authority,
    vendor: Arc<Vendor>,
    catalogue: Catalogue,
) -> (SocketAddr, watch::Receiver<Option<NodeReport>>) {
    let tls = server_config(&credentials(authority, &Identity::ControlPlane), true).unwrap();
    let listener = TlsListener::bind("127.0.0.1:0".parse().unwrap(), Arc::new(tls)).await.unwrap();
    let (address, (reports, receiver)) = (listener.address(), watch::channel(None));
    // The first report is refused, so that every test shows that nodes try again.
    let refused = Arc::new(AtomicBool::new(false));
    let wanted = catalogue.clone();
    let report = post(async move |Json(report): Json<NodeReport>| {
        if !refused.swap(true, Ordering::Relaxed) {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        reports.send_replace(Some(report));
        Ok(Json(ReportReceipt { node_id: 1, os_images: wanted.names() }))
    });
    // The first certificate as well.
    let refused = Arc::new(AtomicBool::new(false));
    let certify = post(async move |Json(request): Json<PlatformRequest>| {
        if !refused.swap(true, Ordering::Relaxed) {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let now = Timestamp::UNIX_EPOCH + now_since_epoch();
        let PlatformRequest { ppid, public_key, proof } = request;
        let registration = Registration { ppid, public_key, proof };
        let issued = vendor.register_platform("node-1", &registration, now).unwrap();
        Ok(Json(PlatformCertificate { certificate_chain: issued.certificate_chain }))
    });
    let routes = Arc::clone(&catalogue.routes);
    let routes = get(async move || Json(Routes { vms: routes.lock().unwrap().clone() }));
    let image = get(async move |extract::Path(hash): extract::Path<OsImageHash>| {
        catalogue.stream(hash).ok_or(StatusCode::NOT_FOUND)
    });
    let service = Router::new()
        .route(paths::REPORT, report)
        .route(paths::DEVELOPMENT_PLATFORM, certify)
        .route(&format!("{}/{{hash}}", paths::OS_IMAGES), image)
        .route(&format!("{}/{{id}}", paths::ROUTES), routes)
        .into_make_service_with_connect_info::<Peer>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    (address, receiver)
}
