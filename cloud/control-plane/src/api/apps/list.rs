//! `GET /apps`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::AppPage;
use utoipa::IntoParams;

use super::records;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::input::Query;
use crate::api::negotiate::Version;
use crate::api::paging::PageSizes;
use crate::api::responses::Authenticated;
use crate::fleet::NodeStanding;
use crate::kms::Kms;
use crate::store::AppFilter;

const PAGE_SIZES: PageSizes = PageSizes { usual: 20, most: 100 };
/// Longest text that is searched for.
const MAX_SEARCH: usize = 128;

members! {
    /// Query of `GET /apps`.
    #[derive(Debug, Default, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct AppsQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most apps of the page.
        #[param(required = false, minimum = 1, maximum = 100, default = 20)]
        pub page_size: Option<i64>,
        /// Part of a CVM's name, app id, VM UUID or instance id; case does not matter.
        #[param(required = false)]
        pub search: Option<String>,
        /// Only apps with a CVM in one of these statuses.
        #[param(required = false)]
        pub status: Option<Vec<String>>,
        /// Only apps that are shown to people outside of the workspace, or only others.
        #[param(required = false)]
        pub listed: Option<bool>,
        /// Only this OS image.
        #[param(required = false)]
        pub base_image: Option<String>,
        /// Only this size.
        #[param(required = false)]
        pub instance_type: Option<String>,
        /// Only keys of this key management service.
        #[param(required = false)]
        pub kms_slug: Option<String>,
        /// Only keys of this kind of key management service.
        #[param(required = false)]
        pub kms_type: Option<String>,
        /// Only on the node of this name.
        #[param(required = false)]
        pub node: Option<String>,
        /// Only in this region; case does not matter.
        #[param(required = false)]
        pub region: Option<String>,
    }
}

/// List apps
///
/// The apps of the workspace, those with the newest CVM first. An app is listed when one CVM of it matches every
/// filter, and is shown with all of its CVMs.
#[utoipa::path(
    get, path = "/apps", tag = "Apps", operation_id = "list_apps", params(AppsQuery),
    responses((status = 200, description = "A page of apps, in the form of the version", body = AppPage), Authenticated),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Query(query): Query<AppsQuery>,
) -> ApiResult<Json<AppPage>> {
    let paging = PAGE_SIZES.read(query.page, query.page_size)?;
    let filter = filter(&api, caller.workspace_id, query).await?;
    let total = api.store.count_apps(&filter).await?;
    let rows = api.store.apps(&filter, paging.limit(), paging.offset()).await?;
    let dstack_apps = records(&api, caller.workspace_id, version, rows).await?;
    let total_pages = paging.pages(total);
    Ok(Json(AppPage { dstack_apps, page: paging.page, page_size: paging.page_size, total, total_pages }))
}

async fn filter(api: &Api, workspace_id: i64, query: AppsQuery) -> ApiResult<AppFilter> {
    // An empty text is what a form without a choice sends.
    let chosen = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (kms_slug, kms_type) = (chosen(query.kms_slug), chosen(query.kms_type));
    let kms_ids = (kms_slug.is_some() || kms_type.is_some()).then(|| {
        let is_kind =
            |kms: &&Arc<Kms>| kms_type.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case(kms.kind()));
        let all = api.kmses.all().iter().filter(is_kind);
        all.filter(|kms| kms_slug.as_deref().is_none_or(|slug| kms.slug() == slug))
            .map(|kms| kms.id())
            .collect()
    });
    let (node, region) = (chosen(query.node), chosen(query.region));
    let node_ids = if node.is_some() || region.is_some() {
        let nodes = api.fleet.standings().await?;
        let is_meant = |standing: &&NodeStanding| {
            let of_region = |region: &str| {
                standing.report.as_ref().is_some_and(|report| report.region.eq_ignore_ascii_case(region))
            };
            node.as_deref().is_none_or(|name| standing.node.name == name)
                && region.as_deref().is_none_or(of_region)
        };
        Some(nodes.iter().filter(is_meant).map(|standing| standing.node.id).collect())
    } else {
        None
    };
    Ok(AppFilter {
        workspace_id,
        search: chosen(query.search).map(|text| searched(&text)),
        statuses: query.status.map(|all| all.into_iter().filter(|status| !status.is_empty()).collect()),
        listed: query.listed,
        base_image: chosen(query.base_image),
        instance_type: chosen(query.instance_type),
        kms_ids,
        node_ids,
    })
}

/// What is looked for, without what other spellings of identifiers add.
fn searched(text: &str) -> String {
    let text = text.trim();
    let text =
        ["app_", "instance_", "0x"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    text.chars().take(MAX_SEARCH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_searched_for_without_their_prefixes() {
        for (text, expected) in [(" web ", "web"), ("app_0a1b", "0a1b"), ("0xAB", "AB"), ("", "")] {
            assert_eq!(searched(text), expected);
        }
        assert_eq!(searched(&"ä".repeat(1000)).chars().count(), MAX_SEARCH);
    }
}
