//! The client of collateral services, against one on loopback that counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cloister_verifier::{
    Clock, CollateralCache, CollateralError, CollateralKey, CollateralSource as _, CollateralSources, Pccs,
    PccsError, TrustRoot, TrustRoots, Update, Verifier,
};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::TcpListener;
use url::Url;

use crate::support::{Minted, now};

/// How the service behaves.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Good,
    /// Lists as Intel sends them, not as hex text.
    Der,
    /// Fails at the first request of each path.
    Shaky,
    Status(u16),
    Redirects,
    Endless,
    NoIssuer,
    Nonsense,
}

struct Service {
    minted: Minted,
    mood: Mood,
    /// Requests by path and query.
    requests: Mutex<HashMap<String, usize>>,
    all: AtomicUsize,
}

async fn serve(mood: Mood) -> (Arc<Service>, Url) {
    let service = Arc::new(Service {
        minted: Minted::new(),
        mood,
        requests: Mutex::default(),
        all: AtomicUsize::new(0),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&service));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (service, url)
}

async fn answer(State(service): State<Arc<Service>>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    service.all.fetch_add(1, Ordering::SeqCst);
    let times = {
        let mut requests = service.requests.lock();
        let times = requests.entry(path.clone()).or_default();
        *times += 1;
        *times
    };
    match service.mood {
        Mood::Shaky if times == 1 => return StatusCode::BAD_GATEWAY.into_response(),
        Mood::Status(status) => return StatusCode::from_u16(status).unwrap().into_response(),
        Mood::Redirects => {
            return (StatusCode::FOUND, [(header::LOCATION, "http://127.0.0.1:9/elsewhere")]).into_response();
        }
        Mood::Endless => return vec![b' '; 3 << 20].into_response(),
        Mood::Nonsense => return "{}".into_response(),
        _ => {}
    }
    let vendor = &service.minted.vendor;
    let of_fmspc = path.strip_prefix("/tdx/certification/v4/tcb?fmspc=C0DE00000000&update=");
    let (header, body) = match (path.as_str(), of_fmspc) {
        (_, Some("standard" | "early")) => {
            ("TCB-Info-Issuer-Chain", vendor.pccs_tcb("C0DE00000000", now()).unwrap().unwrap())
        }
        (
            "/tdx/certification/v4/qe/identity?update=standard"
            | "/tdx/certification/v4/qe/identity?update=early",
            _,
        ) => ("SGX-Enclave-Identity-Issuer-Chain", vendor.pccs_qe_identity(now()).unwrap()),
        ("/sgx/certification/v4/pckcrl?ca=platform&encoding=der", _) => {
            ("SGX-PCK-CRL-Issuer-Chain", vendor.pccs_pck_crl(now()).unwrap())
        }
        ("/sgx/certification/v4/rootcacrl", _) => {
            let list = vendor.root_crl(now()).unwrap();
            let hex = hex::encode(&list).into_bytes();
            return if service.mood == Mood::Der { list } else { hex }.into_response();
        }
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let mut headers = HeaderMap::new();
    if service.mood != Mood::NoIssuer {
        let chain = utf8_percent_encode(&body.issuer_chain, NON_ALPHANUMERIC).to_string();
        headers.insert(header, chain.parse().unwrap());
    }
    (headers, body.body).into_response()
}

impl Service {
    fn key(&self) -> CollateralKey {
        self.minted.verifier().collateral_key(&self.minted.quote()).unwrap()
    }
}

#[tokio::test]
async fn what_it_fetches_is_what_the_vendor_signed() {
    for (mood, suffix) in [(Mood::Good, ""), (Mood::Der, "/sgx/certification/v4/"), (Mood::Shaky, "/")] {
        let (service, url) = serve(mood).await;
        let pccs = Pccs::new(&url.join(suffix).unwrap()).unwrap();
        let fetched = pccs.fetch(&service.key(), Update::Standard).await.unwrap();
        let mut signed = service.minted.collateral();
        // Each answer is signed anew; the texts are the same.
        signed.tcb_info_signature.clone_from(&fetched.tcb_info_signature);
        signed.qe_identity_signature.clone_from(&fetched.qe_identity_signature);
        signed.root_ca_crl.clone_from(&fetched.root_ca_crl);
        signed.pck_crl.clone_from(&fetched.pck_crl);
        assert_eq!(fetched, signed);
        service.minted.verifier().quote_with(&service.minted.quote(), &fetched, now()).unwrap();
        let times = if mood == Mood::Shaky { 2 } else { 1 };
        assert!(service.requests.lock().values().all(|requests| *requests == times));
    }
    let (service, url) = serve(Mood::Good).await;
    Pccs::new(&url).unwrap().fetch(&service.key(), Update::Early).await.unwrap();
    assert_eq!(service.requests.lock().keys().filter(|path| path.contains("update=early")).count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cold_collateral_is_fetched_once_for_all() {
    let (service, url) = serve(Mood::Good).await;
    let sources = CollateralSources::new().with(TrustRoot::Development, Pccs::new(&url).unwrap());
    let cache = CollateralCache::start(sources, Clock::fixed(now())).unwrap();
    let roots = TrustRoots::vendors().with_development_root(service.minted.vendor.root_der()).unwrap();
    let verifier = Verifier::new(roots, cache, Clock::fixed(now()));
    let quote = service.minted.quote();
    let waiting: Vec<_> = (0..64)
        .map(|number| {
            let (verifier, quote) = (verifier.clone(), quote.clone());
            if number % 8 == 0 {
                tokio::task::spawn_blocking(move || verifier.quote_blocking(&quote))
            } else {
                tokio::spawn(async move { verifier.quote(&quote).await })
            }
        })
        .collect();
    for verdict in waiting {
        assert_eq!(verdict.await.unwrap().unwrap().trust_root, TrustRoot::Development);
    }
    assert_eq!(service.all.load(Ordering::SeqCst), 4, "{:?}", service.requests.lock());
}

#[tokio::test]
async fn services_that_misbehave() {
    for (mood, requests, reason) in [
        (Mood::Status(404), 4, "answers 404"),
        (Mood::Status(401), 4, "answers 401"),
        (Mood::Status(503), 12, "answers 503"),
        (Mood::Redirects, 4, "answers 302"),
        (Mood::Endless, 4, "more than"),
        (Mood::NoIssuer, 4, "names no issuer"),
        (Mood::Nonsense, 4, "not a signed document"),
    ] {
        let (service, url) = serve(mood).await;
        let error = Pccs::new(&url).unwrap().fetch(&service.key(), Update::Standard).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert_eq!(service.all.load(Ordering::SeqCst), requests, "{reason}");
        let unreachable = matches!(error, CollateralError::Unreachable(_));
        assert_eq!(unreachable, mood == Mood::Status(503), "{error}");
    }
    // Nobody listens there.
    let (service, _) = serve(Mood::Good).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let pccs = Pccs::new(&format!("http://{free}").parse().unwrap()).unwrap();
    let error = pccs.fetch(&service.key(), Update::Standard).await.unwrap_err();
    assert!(matches!(error, CollateralError::Unreachable(_)), "{error}");
}

#[test]
fn plain_http_is_for_this_machine_only() {
    let pccs = |address: &str| Pccs::new(&address.parse().unwrap());
    for good in ["https://pccs.example", "http://localhost:8081", "http://127.0.0.1/pccs", "http://[::1]/"] {
        pccs(good).unwrap();
    }
    let plain = "http://pccs.example/";
    assert!(matches!(pccs(plain), Err(PccsError::Plain)));
    Pccs::over_plain_http(&plain.parse().unwrap()).unwrap();
    for bad in ["ftp://pccs.example", "https://pccs.example/?key=1", "https://pccs.example/#x", "data:,x"] {
        assert!(matches!(pccs(bad), Err(PccsError::Address)), "{bad}");
    }
}
