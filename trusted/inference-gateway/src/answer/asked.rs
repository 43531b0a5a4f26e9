//! A request that was read, shaped and admitted, with the routes that may answer it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cloister_aci::sha256;
use serde_json::value::RawValue;

use super::Incoming;
use crate::accounting::Tokens;
use crate::admission::{Admission, Ask, KeyHash};
use crate::body::{Body, Constraints};
use crate::config::{ModelConfig, Pricing};
use crate::e2ee::{self, Memory, Opened, Sealer};
use crate::error::{GatewayError, Kind};
use crate::format::{self, Shaped};
use crate::gateway::{Gateway, Live};
use crate::record::{Finished, Row};
use crate::routing::{Model, Route, Wish};
use crate::verification::is_required;

/// Most tokens that a model is believed to take in, or to put out for one answer, where its `context_length` is not told.
const MOST_TOKENS: u64 = 4 << 20;
/// Most times that an upstream is believed to read and write for one answer.
const MOST_TURNS: u64 = 8;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: KeyHash,
    /// Of the body as it came, or decrypted.
    pub(super) received_hash: String,
    pub(super) shaped: Shaped,
    /// Of the shaped body.
    pub(super) shaped_hash: String,
    pub(super) constraints: Constraints,
    pub(super) admission: Admission,
    known: Arc<Model>,
    /// Best first, never empty.
    pub(super) routes: Vec<Arc<Route>>,
    /// Id of the answer, where the surface has one.
    pub(super) answer_id: Option<String>,
    /// Whether only a verified upstream may answer.
    pub(super) is_verified_only: bool,
    /// Whether the client is gone: nothing more is sent for it.
    is_left: AtomicBool,
}

impl Asked {
    /// What an answer of a route costs; without one, what the model does.
    pub(super) fn pricing<'a>(&'a self, route: Option<&'a Route>) -> &'a Pricing {
        let of_model = || route.map_or(&self.known.config.pricing, |route| self.known.pricing(route));
        self.admission.pricing.as_ref().unwrap_or_else(of_model)
    }

    /// What of an upstream's count can be true: one that errs, or lies, must not use up what a key or the gateway has. For
    /// tools that it runs itself an upstream reads and writes several times.
    pub(super) fn believable(&self, tokens: Tokens) -> Tokens {
        let (fits, each) = self.most_tokens();
        let times = self.shaped.texts.saturating_mul(MOST_TURNS);
        // What counts as one text may be several: the estimate has all of them.
        let prompt = fits.saturating_mul(times).saturating_add(self.shaped.prompt_estimate.saturating_mul(2));
        tokens.at_most(prompt, each.saturating_mul(times))
    }

    /// Most tokens that all answers together can have by the limit of the request, or of the model.
    pub(super) fn most_completion(&self) -> u64 {
        let of_model = || self.known.config.max_output_length.unwrap_or(self.most_tokens().0);
        let each = format::limit(&self.shaped.body).unwrap_or_else(of_model);
        each.saturating_mul(self.shaped.texts)
    }

    /// Most tokens that the model takes in, and that it puts out for one answer.
    fn most_tokens(&self) -> (u64, u64) {
        let ModelConfig { context_length, max_output_length, .. } = &self.known.config;
        let fits = context_length.unwrap_or(MOST_TOKENS);
        (fits, fits.max(max_output_length.unwrap_or(0)))
    }

    /// The client is gone.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// Whether nothing more is sent.
    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }
}

/// Why a request was not admitted, and whether it came encrypted.
#[derive(Debug)]
pub(super) struct Denied {
    pub(super) error: GatewayError,
    pub(super) sealer: Option<Sealer>,
}

/// What a request says before it is admitted.
struct Wanted {
    model: String,
    known: Arc<Model>,
    constraints: Constraints,
    /// As it was sent.
    provider: Option<Box<RawValue>>,
    is_encrypted: bool,
    /// `None` for a body that is encrypted: it is opened when it is admitted.
    shaped: Option<Shaped>,
}

/// Reads, admits and shapes a request.
pub(super) async fn ask(
    gateway: &Gateway,
    live: &Live,
    incoming: &Incoming,
    random: u64,
) -> Result<(Asked, Option<Sealer>), Denied> {
    let in_clear = |error| Denied { error, sealer: None };
    let key = incoming.key;
    let mut wanted = match Wanted::read(live, incoming) {
        Ok(wanted) => wanted,
        Err(error) => {
            // Nothing is told about models before the key is known, and nothing is set aside for what is refused; but it
            // counts.
            gateway.control.count_refused(key, &incoming.request_id).await.map_err(in_clear)?;
            return Err(in_clear(error));
        }
    };
    let mut admission = wanted.admit(gateway, incoming, key).await.map_err(in_clear)?;
    let mut sealer = None;
    match wanted.asked(gateway, live, incoming, (key, &mut admission), random, &mut sealer).await {
        Ok(asked) => Ok((asked, sealer)),
        Err(error) => {
            withdraw(gateway, incoming, key, &admission, (&wanted, &error)).await;
            Err(Denied { error, sealer })
        }
    }
}

impl Wanted {
    fn read(live: &Live, incoming: &Incoming) -> Result<Self, GatewayError> {
        let is_sealed = e2ee::is_asked(&incoming.headers);
        let body = Body::parse(&incoming.body)?;
        let mut constraints = Constraints::of(&body)?;
        constraints.verified |= incoming.is_tee_host;
        let model =
            format::asked_model(&body).map_err(|error| if is_sealed { e2ee::no_model() } else { error })?;
        let Some(known) = live.catalogue.model(&model).cloned() else {
            let wish =
                Wish { model: &model, constraints: &constraints, parameters: &[], pricing: None, random: 0 };
            let error = live.catalogue.candidates(&wish).err();
            return Err(error.unwrap_or_else(|| GatewayError::new(Kind::Internal, "The model was not found")));
        };
        let shape = || format::shape_parsed(incoming.surface, &incoming.body, &body, &known);
        let shaped = (!is_sealed).then(shape).transpose()?;
        let provider = body.raw("provider").map(ToOwned::to_owned);
        Ok(Self { model, known, constraints, provider, is_encrypted: is_sealed, shaped })
    }

    async fn admit(
        &self,
        gateway: &Gateway,
        incoming: &Incoming,
        key: KeyHash,
    ) -> Result<Admission, GatewayError> {
        let dearest = self.dearest();
        gateway.control.admit(&self.ask(incoming, key, &dearest, &incoming.body)).await
    }

    fn dearest(&self) -> Pricing {
        let Self { constraints, model, .. } = self;
        // Which parameters it has is not known of an encrypted request: more routes fit, rather than fewer.
        let wish = Wish { model, constraints, parameters: &[], pricing: None, random: 0 };
        self.known.dearest(self.known.fitting(&wish))
    }

    fn ask<'a>(
        &'a self,
        incoming: &'a Incoming,
        key: KeyHash,
        dearest: &'a Pricing,
        body: &'a [u8],
    ) -> Ask<'a> {
        Ask {
            key,
            request_id: &incoming.request_id,
            surface: incoming.surface,
            model: &self.model,
            known: &self.known.config,
            dearest,
            keeps_limits: format::keeps_limits(&self.known),
            provider: self.provider.as_deref(),
            is_tee_host: incoming.is_tee_host,
            is_encrypted: self.is_encrypted,
            body,
        }
    }

    /// What is asked for, once it may be. `sealer` is there as soon as the body was opened.
    async fn asked(
        &mut self,
        gateway: &Gateway,
        live: &Live,
        incoming: &Incoming,
        (key, admission): (KeyHash, &mut Admission),
        random: u64,
        sealer: &mut Option<Sealer>,
    ) -> Result<Asked, GatewayError> {
        let (bytes, mut shaped) = if let Some(shaped) = self.shaped.take() {
            (incoming.body.clone(), shaped)
        } else {
            let opened = open(gateway, incoming, key).await?;
            *sealer = Some(opened.sealer);
            // One ciphertext may hold a hundred pictures.
            let dearest = self.dearest();
            gateway.control.raise(&self.ask(incoming, key, &dearest, &opened.body), admission)?;
            let shaped = format::shape(incoming.surface, &opened.body, &self.known)?;
            (opened.body, shaped)
        };
        shaped.created = crate::gateway::unix_now();
        let routes = routes(live, &shaped, &self.constraints, admission, random)?;
        let received_hash = sha256(&bytes);
        // A body that nobody had to change is not hashed twice.
        let shaped_hash = if shaped.body == bytes { received_hash.clone() } else { sha256(&shaped.body) };
        Ok(Asked {
            key,
            received_hash,
            shaped_hash,
            answer_id: format::answer_id(incoming.surface, &incoming.request_id),
            is_verified_only: is_required(&self.constraints, &self.known, incoming.is_tee_host),
            shaped,
            constraints: self.constraints.clone(),
            admission: admission.clone(),
            known: Arc::clone(&self.known),
            routes,
            is_left: AtomicBool::new(false),
        })
    }
}

async fn open(gateway: &Gateway, incoming: &Incoming, key: KeyHash) -> Result<Opened, GatewayError> {
    let (identity, now) = (gateway.notary.identity(), crate::gateway::unix_now());
    let memory = Memory { shares: &gateway.challenges, key, store: &gateway.store };
    let Incoming { headers, surface, body, .. } = incoming;
    e2ee::open(headers, *surface, body, &identity, memory, now).await
}

/// A request that was admitted is not answered: whoever set credit aside for it is told. Where nobody is, what was set
/// aside is free with the admission.
async fn withdraw(
    gateway: &Gateway,
    incoming: &Incoming,
    key: KeyHash,
    admission: &Admission,
    (wanted, error): (&Wanted, &GatewayError),
) {
    if !gateway.control.is_told_of_ends() {
        return;
    }
    let (path, now) = (incoming.surface.path(), crate::gateway::unix_now());
    let row = Row {
        spend_mode: admission.spend_mode.clone(),
        user_id: admission.user_id.clone(),
        virtual_key_id: admission.virtual_key_id.clone(),
        prefix_hash: admission.prefix_hash.clone(),
        ..Row::refused(&incoming.request_id, path, &wanted.model, error.status().as_u16(), now)
    };
    let finished = Finished { key, rows: vec![row], receipt: None };
    if let Err(error) = gateway.store.finish(finished.clone()).await {
        tracing::warn!(request_id = incoming.request_id, %error, "a refused request could not be recorded yet");
        gateway.arrears.add(finished);
    }
}

/// The routes to try: the catalogue's choice, or those that a control plane names out of it.
fn routes(
    live: &Live,
    shaped: &Shaped,
    constraints: &Constraints,
    admission: &Admission,
    random: u64,
) -> Result<Vec<Arc<Route>>, GatewayError> {
    let parameters: Vec<&str> = shaped.parameters.iter().map(String::as_str).collect();
    let pricing = admission.pricing.as_ref();
    let wish =
        |constraints| Wish { model: &shaped.model, constraints, parameters: &parameters, pricing, random };
    let Some(named) = &admission.routes else { return live.catalogue.candidates(&wish(constraints)) };
    // How far it may fall back is seen in the control plane's order, not in the catalogue's.
    let unbound = Constraints { no_fallbacks: false, ..constraints.clone() };
    let allowed = live.catalogue.candidates(&wish(&unbound))?;
    let mut routes: Vec<Arc<Route>> =
        named.iter().filter_map(|id| allowed.iter().find(|route| route.id == *id).cloned()).collect();
    if constraints.no_fallbacks {
        if constraints.order.is_empty() {
            routes.truncate(1);
        } else {
            routes.retain(|route| constraints.order.contains(&route.upstream.name));
        }
    }
    if routes.is_empty() {
        let message = "The model has no route that this key may use under the constraints of 'provider'";
        return Err(GatewayError {
            param: Some("provider".to_owned()),
            ..GatewayError::new(Kind::NoRoute, message)
        });
    }
    Ok(routes)
}
