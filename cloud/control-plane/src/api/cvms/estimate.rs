//! `POST /cvms/estimate`

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use cloister_management_api::{ErrorBody, Estimate, EstimatePart, EstimateRequest, amount_text};
use cloister_metering::{Billed, UsageType};
use rust_decimal::Decimal;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::gpu_wish;
use crate::api::input::Body;
use crate::api::placing::Wish;
use crate::api::responses::Authenticated;
use crate::fleet::{GpuNeed, NodeStanding};

/// Hours of a day.
const DAY: u32 = 24;
/// Hours of a month: a twelfth of a year.
const MONTH: u32 = 730;
/// Most CVMs of an estimate.
const MAX_COUNT: u32 = 1000;
/// What GPUs are called whose product is not known before they are chosen.
const ANY: &str = "any";

/// Estimate what CVMs would cost
///
/// Takes the members of a provision that say how large a CVM is. Nothing is looked for and nothing is kept: whether a
/// node has room shows when the CVM is provisioned. All GPUs of a node are as many as nobody knows, and cannot be
/// estimated.
#[utoipa::path(
    post, path = "/cvms/estimate", tag = "Billing", operation_id = "estimate_cvm",
    request_body(content = EstimateRequest, example = json!({"instance_type": "tdx.small", "disk_size": 40})),
    responses(
        (status = 200, description = "What they would cost", body = Estimate),
        (status = 400, description = "No such size (ERR-02-001), or no such values (ERR-02-008, ERR-02-009)", body = ErrorBody),
        Authenticated,
    ),
)]
pub(crate) async fn estimate(
    State(api): State<Api>,
    _: Auth,
    Body(request): Body<EstimateRequest>,
) -> ApiResult<Json<Estimate>> {
    if !(1..=MAX_COUNT).contains(&request.count) {
        return Err(ApiError::fault(&["body", "count"], "out_of_range", "Input should be from 1 to 1000"));
    }
    let prices = api.store.prices();
    let gpus = request.gpus.as_ref().map(gpu_wish::need).transpose()?.unwrap_or_default();
    let wish = Wish {
        instance_type: request.instance_type,
        vcpu: request.vcpu,
        memory_mb: request.memory,
        disk_gb: request.disk_size,
        gpus,
        ..Wish::default()
    };
    let (instance_type, needs) = wish.size(prices)?;
    let amount = |of: i64| u32::try_from(of).unwrap_or(u32::MAX);
    let billed = Billed {
        instance_type,
        vcpu: amount(needs.vcpu),
        memory_mb: amount(needs.memory_mb),
        disk_gb: amount(needs.disk_gb),
        gpus: products(&api, &needs.gpus).await?,
    };
    Ok(Json(answer(&api, billed, request.count)))
}

/// The GPUs by product, as far as it can be known before they are chosen.
async fn products(api: &Api, need: &GpuNeed) -> ApiResult<BTreeMap<String, u32>> {
    let (count, product) = match need {
        GpuNeed::None => return Ok(BTreeMap::new()),
        GpuNeed::Slots(slots) => (u32::try_from(slots.len()).unwrap_or(u32::MAX), None),
        GpuNeed::Count { count, product } => (*count, product.as_deref()),
        GpuNeed::All => {
            let message = "how many GPUs all of a node are is known when it is chosen; ask for a count";
            return Err(ApiError::explained(cloister_management_api::ErrorCode::InvalidParameter, message)
                .about("gpus", "all"));
        }
    };
    let Some(product) = product else { return Ok([(ANY.to_owned(), count)].into()) };
    // By its name, as nodes report it.
    let standings = api.fleet.standings().await?;
    let known = standings.iter().flat_map(NodeStanding::gpus).find(|gpu| gpu.product_name == product);
    let id = known.map_or_else(|| product.to_ascii_lowercase(), |gpu| gpu.product_id.clone());
    Ok([(id, count)].into())
}

fn answer(api: &Api, billed: Billed, count: u32) -> Estimate {
    let prices = api.store.prices();
    let rates = prices.rates(&billed);
    let gpu_count: u32 = billed.gpus.values().sum();
    let times = |hours: u32, rate: Decimal| {
        let cvms = rate.saturating_mul(Decimal::from(count));
        amount_text(cvms.saturating_mul(Decimal::from(hours)))
    };
    let part = |usage_type: UsageType, what: String, rate| EstimatePart {
        usage_type: usage_type.to_string(),
        what,
        hourly: times(1, rate),
        daily: times(DAY, rate),
        monthly: times(MONTH, rate),
    };
    let compute = format!("{} vCPU, {} MiB memory", billed.vcpu, billed.memory_mb);
    let mut parts = vec![part(UsageType::Compute, compute, rates.compute)];
    if gpu_count > 0 {
        let products: Vec<_> =
            billed.gpus.iter().map(|(product, count)| format!("{count} × {product}")).collect();
        parts.push(part(UsageType::Gpu, products.join(", "), rates.gpu));
    }
    parts.push(part(UsageType::Storage, format!("{} GiB data disk", billed.disk_gb), rates.storage));
    Estimate {
        currency: prices.currency().to_owned(),
        instance_type: billed.instance_type,
        vcpu: billed.vcpu,
        memory_mb: billed.memory_mb,
        disk_gb: billed.disk_gb,
        gpu_count,
        count,
        parts,
        hourly: times(1, rates.total()),
        daily: times(DAY, rates.total()),
        monthly: times(MONTH, rates.total()),
        monthly_while_stopped: times(MONTH, rates.storage),
    }
}
