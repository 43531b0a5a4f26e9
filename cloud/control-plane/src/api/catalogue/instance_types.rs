//! `GET /instance-types` and `/instance-types/{family}`

use axum::Json;
use axum::extract::Path;
use cloister_management_api::{
    InstanceType, InstanceTypeFamily, InstanceTypeGroup, InstanceTypes, PlainError,
};

use crate::api::error::{ApiError, ApiResult};
use crate::api::sizes::{self, CPU_FAMILY, GPU_FAMILY};

/// List sizes
#[utoipa::path(
    get, path = "/instance-types", tag = "Catalogue", operation_id = "list_instance_types", security(()),
    responses((status = 200, description = "The sizes by family", body = InstanceTypes)),
)]
pub(crate) async fn list() -> Json<InstanceTypes> {
    let group = |family: &str| {
        let items = of_family(family);
        InstanceTypeGroup { name: family.to_owned(), total: items.len(), items }
    };
    Json(InstanceTypes { result: [CPU_FAMILY, GPU_FAMILY].map(group).into() })
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
pub(crate) async fn family(Path(family): Path<String>) -> ApiResult<Json<InstanceTypeFamily>> {
    let items = of_family(&family);
    if items.is_empty() {
        return Err(ApiError::not_found("Instance type family"));
    }
    Ok(Json(InstanceTypeFamily { total: items.len(), items, family }))
}

fn of_family(family: &str) -> Vec<InstanceType> {
    let mut items = sizes::all();
    items.retain(|size| size.family.as_deref() == Some(family));
    items
}
