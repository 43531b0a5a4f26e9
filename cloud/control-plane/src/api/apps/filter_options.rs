//! `GET /apps/filter-options`

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use cloister_management_api::AppFilterOptions;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;
use crate::store::AppFacet;

/// List what apps can be filtered by
///
/// The values that the CVMs of the workspace have.
#[utoipa::path(
    get, path = "/apps/filter-options", tag = "Apps", operation_id = "get_app_filter_options",
    responses((status = 200, description = "The values", body = AppFilterOptions), Authenticated),
)]
pub(crate) async fn filter_options(
    State(api): State<Api>,
    Auth(caller): Auth,
) -> ApiResult<Json<AppFilterOptions>> {
    let facets = api.store.app_facets(caller.workspace_id).await?;
    let on: BTreeSet<i64> = facets.iter().map(|facet| facet.node_id).collect();
    let nodes = api.fleet.standings().await?;
    let nodes: Vec<_> = nodes.into_iter().filter(|standing| on.contains(&standing.node.id)).collect();
    let kms_ids: BTreeSet<i64> = facets.iter().filter_map(|facet| facet.kms_id).collect();
    let regions = nodes.iter().filter_map(|standing| standing.report.as_ref());
    Ok(Json(AppFilterOptions {
        statuses: distinct(&facets, |facet| Some(facet.status.clone())),
        image_versions: distinct(&facets, |facet| Some(facet.os_image_name.clone())),
        instance_types: distinct(&facets, |facet| facet.instance_type.clone()),
        kms_slugs: sorted(kms_ids.iter().filter_map(|id| Some(api.kmses.get(*id)?.slug().to_owned()))),
        kms_types: sorted(kms_ids.iter().map(|id| api.kmses.kind_of(*id).to_owned())),
        regions: sorted(regions.map(|report| report.region.clone())),
        nodes: sorted(nodes.iter().map(|standing| standing.node.name.clone())),
    }))
}

fn distinct(facets: &[AppFacet], of: impl Fn(&AppFacet) -> Option<String>) -> Vec<String> {
    sorted(facets.iter().filter_map(of))
}

fn sorted(values: impl Iterator<Item = String>) -> Vec<String> {
    values.collect::<BTreeSet<_>>().into_iter().collect()
}
