//! `GET /instance-types` and `/instance-types/{family}`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{InstanceTypeFamily, InstanceTypeGroup, InstanceTypes, PlainError};

use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::sizes;

/// List sizes
#[utoipa::path(
    get, path = "/instance-types", tag = "Catalogue", operation_id = "list_instance_types", security(()),
    responses((status = 200, description = "The sizes by family", body = InstanceTypes)),
)]
pub(crate) async fn list(State(api): State<Api>) -> Json<InstanceTypes> {
    let mut result: Vec<InstanceTypeGroup> = Vec::new();
    for item in sizes::all(api.store.prices()) {
        let family = item.family.clone().unwrap_or_default();
        match result.iter_mut().find(|group| group.name == family) {
            Some(group) => group.items.push(item),
            None => result.push(InstanceTypeGroup { name: family, items: vec![item], total: 0 }),
        }
    }
    for group in &mut result {
        group.total = group.items.len();
    }
    Json(InstanceTypes { result })
}

/// List the sizes of a family
#[utoipa::path(
    get, path = "/instance-types/{family}", tag = "Catalogue", operation_id = "list_instance_type_family", security(()),
    params(("family" = String, Path, description = "Family", example = "cpu")),
    responses(
        (status = 200, description = "The sizes", body = InstanceTypeFamily),
        (status = 404, description = "No such family", body = PlainError),
    ),
)]
pub(crate) async fn family(
    State(api): State<Api>,
    Path(family): Path<String>,
) -> ApiResult<Json<InstanceTypeFamily>> {
    let all = sizes::all(api.store.prices());
    let items: Vec<_> = all.filter(|size| size.family.as_deref() == Some(family.as_str())).collect();
    if items.is_empty() {
        return Err(ApiError::not_found("Instance type family"));
    }
    Ok(Json(InstanceTypeFamily { total: items.len(), items, family }))
}
