//! Models and their routes, and the choice among them.

use std::collections::HashMap;
use std::sync::Arc;

use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive;

use super::{Breaker, Health, Speed};
use crate::body::{Constraints, DataCollection, Sort};
use crate::config::{GatewayConfig, ModelConfig, Pricing, UpstreamConfig};
use crate::error::{GatewayError, Kind};

const MILLION: Decimal = Decimal::from_parts(1_000_000, 0, 0, false, 0);

/// One way to have a model answered.
#[derive(Debug)]
pub struct Route {
    /// `<upstream>:<public model id>`.
    pub id: String,
    /// Who answers; its prices are the model's to tell.
    pub upstream: Arc<UpstreamConfig>,
    /// What the upstream calls the model.
    pub upstream_model: String,
    /// Whether the upstream is a part of the gateway's machine, whose evidence is about it, too.
    pub is_own: bool,
    /// Whether it is worth trying.
    pub breaker: Breaker,
    /// How quick it was lately.
    pub speed: Speed,
}

impl Route {
    /// Whether it can be proved what the upstream is.
    #[must_use]
    pub fn is_tee(&self) -> bool {
        self.is_own || self.upstream.is_tee()
    }
}

/// A model and its routes.
#[derive(Debug)]
pub struct Model {
    /// What is told about it.
    pub config: ModelConfig,
    /// Its routes, in the order of the configuration.
    pub routes: Vec<Arc<Route>>,
    /// What it costs at upstreams with prices of their own, by their names.
    prices: HashMap<String, Pricing>,
}

impl Model {
    /// What an answer of one of its routes costs.
    #[must_use]
    pub fn pricing<'a>(&'a self, route: &'a Route) -> &'a Pricing {
        self.prices.get(&route.upstream.name).unwrap_or(&self.config.pricing)
    }

    /// Prices that none of these routes goes beyond; those of the model if there are none.
    pub fn dearest<'a>(&'a self, routes: impl IntoIterator<Item = &'a Arc<Route>>) -> Pricing {
        let prices = routes.into_iter().map(|route| self.pricing(route));
        let dearest = prices.fold(None::<Pricing>, |dearest, pricing| {
            Some(dearest.map_or_else(|| pricing.clone(), |dearest| dearest.dearest(pricing)))
        });
        dearest.unwrap_or_else(|| self.config.pricing.clone())
    }

    /// The routes that a request may take, in the order of the configuration.
    pub fn fitting<'a>(&'a self, wish: &'a Wish<'_>) -> impl Iterator<Item = &'a Arc<Route>> {
        self.routes.iter().filter(|route| fits(self, route, wish))
    }

    /// Whether it can be proved of every route what it is: then each request demands it.
    #[must_use]
    pub fn is_tee_only(&self) -> bool {
        self.routes.iter().all(|route| route.is_tee())
    }
}

/// What a request asks of its route.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The public model id.
    pub model: &'a str,
    /// What the client rules out.
    pub constraints: &'a Constraints,
    /// Names of the parameters that the request has.
    pub parameters: &'a [&'a str],
    /// Prices that hold instead of those of the routes.
    pub pricing: Option<&'a Pricing>,
    /// A number that chooses among routes of one priority, of any size.
    pub random: u64,
}

/// All models.
#[derive(Debug, Default)]
pub struct Catalogue {
    models: HashMap<String, Arc<Model>>,
    order: Vec<String>,
}

impl Catalogue {
    /// The models of a configuration: those that it describes first, then those that upstreams serve besides.
    #[must_use]
    pub fn new(config: &GatewayConfig) -> Self {
        Self::following(config, None)
    }

    /// The same; routes that are as they were in the previous catalogue stay, with what is known of them.
    #[must_use]
    pub fn following(config: &GatewayConfig, previous: Option<&Self>) -> Self {
        let upstreams: Vec<_> =
            config.upstreams.iter().map(|upstream| Arc::new(upstream.without_prices())).collect();
        let described = config.models.iter().map(|model| model.id.as_str());
        let served = upstreams.iter().flat_map(|upstream| upstream.models.keys().map(String::as_str));
        let mut catalogue = Self::default();
        for id in described.chain(served) {
            if catalogue.models.contains_key(id) {
                continue;
            }
            let described = config.models.iter().find(|model| model.id == id).cloned();
            let model = Model {
                config: described.unwrap_or_else(|| undescribed(id)),
                routes: upstreams
                    .iter()
                    .filter_map(|upstream| route(id, upstream, config, previous))
                    .collect(),
                prices: prices(id, config),
            };
            catalogue.order.push(id.to_owned());
            catalogue.models.insert(id.to_owned(), Arc::new(model));
        }
        catalogue
    }

    /// All models, in the order of the configuration.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.order.iter().filter_map(|id| self.models.get(id))
    }

    /// A model.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.models.get(id)
    }

    /// The routes for a request, best first. Fails for a model that is not there, and for constraints that leave
    /// none. Routes that rest stand last: if all rest, the last resort is to try.
    pub fn candidates(&self, wish: &Wish<'_>) -> Result<Vec<Arc<Route>>, GatewayError> {
        let model = self.models.get(wish.model).ok_or_else(|| {
            let mut error = GatewayError::new(
                Kind::UnknownModel,
                format!("The model '{}' does not exist", shown(wish.model)),
            );
            error.param = Some("model".to_owned());
            error
        })?;
        let mut routes: Vec<_> = model.fitting(wish).cloned().collect();
        if routes.is_empty() {
            return Err(no_route(model, wish));
        }
        sort(&mut routes, model, wish);
        if wish.constraints.no_fallbacks {
            let order = &wish.constraints.order;
            routes.retain(|route| order.is_empty() || order.contains(&route.upstream.name));
            if order.is_empty() {
                routes.truncate(1);
            }
        }
        if routes.is_empty() { Err(no_route(model, wish)) } else { Ok(routes) }
    }
}

fn undescribed(id: &str) -> ModelConfig {
    ModelConfig {
        id: id.to_owned(),
        name: None,
        description: String::new(),
        created: 0,
        context_length: None,
        max_output_length: None,
        pricing: Pricing::default(),
        input_modalities: vec!["text".to_owned()],
        output_modalities: vec!["text".to_owned()],
        supported_parameters: None,
        metadata: serde_json::Map::new(),
        require_verified: false,
    }
}

fn prices(model: &str, config: &GatewayConfig) -> HashMap<String, Pricing> {
    let own = |upstream: &UpstreamConfig| Some((upstream.name.clone(), upstream.pricing.get(model)?.clone()));
    config.upstreams.iter().filter_map(own).collect()
}

fn route(
    model: &str,
    upstream: &Arc<UpstreamConfig>,
    config: &GatewayConfig,
    previous: Option<&Catalogue>,
) -> Option<Arc<Route>> {
    let (upstream_model, is_own) = (upstream.models.get(model)?.clone(), config.direct_serving);
    let before = previous.and_then(|catalogue| catalogue.model(model));
    // Whose evidence counts is no other one before a restart.
    let is_same = |route: &&Arc<Route>| route.upstream == *upstream;
    if let Some(same) = before.into_iter().flat_map(|model| &model.routes).find(is_same) {
        return Some(Arc::clone(same));
    }
    Some(Arc::new(Route {
        id: format!("{}:{model}", upstream.name),
        upstream: Arc::clone(upstream),
        upstream_model,
        is_own,
        breaker: Breaker::default(),
        speed: Speed::default(),
    }))
}

fn fits(model: &Model, route: &Route, wish: &Wish<'_>) -> bool {
    let (constraints, upstream) = (wish.constraints, &route.upstream);
    let names = |list: &[String]| list.contains(&upstream.name);
    let quantization = upstream.quantization.as_deref();
    (!constraints.zdr || upstream.zdr)
        && (constraints.only.is_empty() || names(&constraints.only))
        && !names(&constraints.ignore)
        && (constraints.data_collection == DataCollection::Allow || !upstream.stores_data)
        && (constraints.quantizations.is_empty()
            || constraints.quantizations.iter().any(|wanted| Some(wanted.as_str()) == quantization))
        && (!constraints.verified || route.is_tee())
        && (!constraints.require_parameters || knows(upstream, wish.parameters))
        && costs_at_most(wish.pricing.unwrap_or_else(|| model.pricing(route)), constraints)
}

fn knows(upstream: &UpstreamConfig, parameters: &[&str]) -> bool {
    let Some(known) = &upstream.supported_parameters else { return true };
    parameters.iter().all(|parameter| crate::format::supports(known, parameter))
}

fn costs_at_most(pricing: &Pricing, constraints: &Constraints) -> bool {
    [(&constraints.max_price.prompt, pricing.prompt), (&constraints.max_price.completion, pricing.completion)]
        .into_iter()
        .all(|(limit, price)| match limit {
            None => true,
            // A limit that is no amount lets nothing through.
            Some(limit) => limit
                .as_f64()
                .and_then(Decimal::from_f64)
                .is_some_and(|limit| price.saturating_mul(MILLION) <= limit),
        })
}

/// The client's order, then what it sorts by (price: of a token in and one out) or else priorities and chance by
/// weight. Routes that rest come after all others, and those of unknown speed after those that are known.
fn sort(routes: &mut [Arc<Route>], model: &Model, wish: &Wish<'_>) {
    let order = &wish.constraints.order;
    let place =
        |route: &Route| order.iter().position(|name| *name == route.upstream.name).unwrap_or(order.len());
    let is_resting = |route: &Route| route.breaker.health() == Health::Resting;
    let price = |route: &Route| {
        let Pricing { prompt, completion, .. } = wish.pricing.unwrap_or_else(|| model.pricing(route));
        (wish.constraints.sort == Some(Sort::Price)).then(|| prompt.saturating_add(*completion))
    };
    let rank = |route: &Route| match wish.constraints.sort {
        None => (u64::from(route.upstream.priority), draw(route, wish.random)),
        // Of those that cost the same.
        Some(Sort::Price) => (u64::from(route.upstream.priority), 0),
        Some(Sort::Latency) => {
            let micros =
                route.speed.first_byte().map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
            (micros.unwrap_or(u64::MAX), 0)
        }
        Some(Sort::Throughput) => {
            (route.speed.millitokens_per_second().map_or(u64::MAX, |rate| u64::MAX - rate), 0)
        }
    };
    routes.sort_by_cached_key(|route| (is_resting(route), place(route), price(route), rank(route)));
}

/// A number by which routes are ordered so that the heavier of two comes first in proportion to its weight: the
/// weighted draw without replacement of Efraimidis and Spirakis, u^(1/w), compared by its logarithm.
fn draw(route: &Route, random: u64) -> u64 {
    let mixed = mix(random ^ fingerprint(&route.id));
    // 53 random bits make a number in (0, 1); its negated logarithm divided by the weight is exponential.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    let key = -unit.ln() / f64::from(route.upstream.weight);
    // Smaller keys win; all are positive and finite, so that their bits have their order.
    key.to_bits()
}

fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads what differs in few bits (the finaliser of `SplitMix64`).
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn no_route(model: &Model, wish: &Wish<'_>) -> GatewayError {
    let why = if wish.constraints.zdr && !model.routes.iter().any(|route| route.upstream.zdr) {
        "has no route with zero data retention"
    } else if wish.constraints.verified && !model.routes.iter().any(|route| route.is_tee()) {
        "has no route that proves what it is"
    } else {
        "has no route that satisfies the constraints of 'provider'"
    };
    let mut error = GatewayError::new(Kind::NoRoute, format!("The model '{}' {why}", model.config.id));
    error.param = Some("provider".to_owned());
    error
}

/// What a client sent, fit to be shown to it.
fn shown(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(128).collect()
}
