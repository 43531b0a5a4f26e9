//! Applications as answers show them.

use cloister_app_compose::AppId;
use cloister_management_api::{ApiVersion, App, AppRecord, ProjectId};

use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::scene::Scene;
use crate::api::view::{View, time};
use crate::kms::Kmses;
use crate::operations::CvmStatus;
use crate::store::{AppRow, CvmRow};

/// Nothing tells an application of others from one that does not exist.
pub(super) fn missing() -> ApiError {
    ApiError::not_found("App")
}

/// The id in a path, with or without `app_` and `0x`.
pub(super) fn parse(text: &str) -> ApiResult<AppId> {
    let digits = text.strip_prefix("app_").unwrap_or(text);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    digits.to_ascii_lowercase().parse().map_err(|_| missing())
}

/// Applications of a workspace in the form of a version, in the same order.
pub(super) async fn records(
    api: &Api,
    workspace_id: i64,
    version: ApiVersion,
    rows: Vec<AppRow>,
) -> ApiResult<Vec<AppRecord>> {
    let ids: Vec<AppId> = rows.iter().map(|row| row.app_id).collect();
    let cvms = api.store.cvms_of_apps(workspace_id, &ids).await?;
    let scene = Scene::of(api, &cvms).await?;
    let record = |row: AppRow| {
        let own: Vec<&CvmRow> = cvms.iter().filter(|cvm| cvm.app_id == row.app_id).collect();
        if version >= ApiVersion::V20260121 {
            let app = app(&api.kmses, &row, &own, |cvm| View::new(api, &scene, cvm).info())?;
            return Some(AppRecord::Info(Box::new(app)));
        }
        let app = app(&api.kmses, &row, &own, |cvm| View::new(api, &scene, cvm).basic_info())?;
        let workspace = scene.workspaces.get(&workspace_id);
        Some(AppRecord::Basic(Box::new(App {
            team_slug: workspace.map(|workspace| workspace.slug.clone()),
            team_name: workspace.map(|workspace| workspace.name.clone()),
            ..app
        })))
    };
    // The last CVM of an app may have gone since its row was read.
    Ok(rows.into_iter().filter_map(record).collect())
}

/// An application with its CVMs, newest first; `None` without any.
fn app<C: Clone>(
    kmses: &Kmses,
    row: &AppRow,
    cvms: &[&CvmRow],
    show: impl Fn(&CvmRow) -> C,
) -> Option<App<C>> {
    let newest = cvms.first()?;
    let shown: Vec<C> = cvms.iter().map(|cvm| show(cvm)).collect();
    let current = cvms.iter().position(|cvm| cvm.status == CvmStatus::Running).unwrap_or_default();
    Some(App {
        id: project_id(row.app_id),
        name: newest.name.clone(),
        app_id: row.app_id,
        app_provision_type: None,
        app_icon_url: None,
        created_at: time(row.created_at_ms),
        kms_type: newest.kms_id.map_or("", |id| kmses.kind_of(id)).to_owned(),
        profile: None,
        current_cvm: shown.get(current).cloned(),
        cvms: shown,
        cvm_count: row.cvm_count,
        team_slug: None,
        team_name: None,
    })
}

/// An app is not a row of its own: its id as a record is made from its app id.
fn project_id(app_id: AppId) -> ProjectId {
    let first = app_id.as_bytes().iter().take(7);
    ProjectId(first.fold(0, |id, byte| (id << 8) | i64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_in_every_spelling() {
        let digits = "0aBc".repeat(10);
        let expected = parse(&digits.to_lowercase()).unwrap();
        for text in
            [digits.clone(), format!("0x{digits}"), format!("app_{digits}"), format!("app_0x{digits}")]
        {
            assert_eq!(parse(&text).unwrap(), expected, "{text}");
        }
        for text in ["", "app_", &digits[1..], &format!("{digits}0"), &"zz".repeat(20)] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(project_id(expected).to_string().starts_with("prj_"));
        assert_ne!(project_id(expected), project_id("00".repeat(20).parse().unwrap()));
    }
}
