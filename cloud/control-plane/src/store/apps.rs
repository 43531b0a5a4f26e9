//! Applications: the living CVMs of a workspace that share an app id.

use std::sync::LazyLock;

use cloister_app_compose::AppId;
use sqlx::FromRow;

use super::cvms::cvm_columns;
use super::{CvmRow, Result, Store};

/// Most applications of a page.
pub(super) const MAX_PAGE: usize = 100;
/// Most CVMs that are shown of one application.
const MAX_CVMS_OF_APP: i64 = 100;
/// Most CVMs that are shown of a page of applications.
const MAX_CVMS_OF_PAGE: i64 = 1_000;

/// Which applications a list shows: those with a CVM that everything matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppFilter {
    /// Whose.
    pub workspace_id: i64,
    /// Part of a name, app id, VM UUID or instance id; case does not matter.
    pub search: Option<String>,
    /// One of these statuses.
    pub statuses: Option<Vec<String>>,
    /// Shown to people outside of the workspace, or not.
    pub listed: Option<bool>,
    /// Name of the OS image.
    pub base_image: Option<String>,
    /// Catalogue id of the size.
    pub instance_type: Option<String>,
    /// One of these key management services.
    pub kms_ids: Option<Vec<i64>>,
    /// On one of these nodes.
    pub node_ids: Option<Vec<i64>>,
}

impl AppFilter {
    /// All applications of a workspace.
    #[must_use]
    pub const fn all_of(workspace_id: i64) -> Self {
        Self {
            workspace_id,
            search: None,
            statuses: None,
            listed: None,
            base_image: None,
            instance_type: None,
            kms_ids: None,
            node_ids: None,
        }
    }
}

/// An application of a page.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct AppRow {
    /// Application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// Its living CVMs.
    pub cvm_count: i64,
    /// When the oldest of them was created.
    pub created_at_ms: i64,
}

/// A combination of values that some CVM of a workspace has.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct AppFacet {
    /// Status.
    pub status: String,
    /// Name of the OS image.
    pub os_image_name: String,
    /// Catalogue id of the size.
    pub instance_type: Option<String>,
    /// Key management service.
    pub kms_id: Option<i64>,
    /// Node.
    pub node_id: i64,
}

// An absent filter is an empty text or -1; a list is written `,a,b,`, so that one statement serves every filter.
macro_rules! matching {
    () => {
        "FROM cvms c WHERE c.workspace_id = $1 AND c.deleted_at_ms IS NULL \
         AND ($2 = '' OR LOWER(c.name) LIKE $2 ESCAPE '!' OR c.app_id LIKE $2 ESCAPE '!' \
             OR c.vm_uuid LIKE $2 ESCAPE '!' OR c.instance_id LIKE $2 ESCAPE '!') \
         AND ($3 = '' OR $3 LIKE '%,' || c.status || ',%') \
         AND ($4 < 0 OR c.listed = $4) \
         AND ($5 = '' OR c.os_image_name = $5) \
         AND ($6 = '' OR c.instance_type = $6) \
         AND ($7 = '' OR $7 LIKE '%,' || CAST(c.kms_id AS TEXT) || ',%') \
         AND ($8 = '' OR $8 LIKE '%,' || CAST(c.node_id AS TEXT) || ',%')"
    };
}

const PAGE: &str = concat!(
    "SELECT m.app_id, (SELECT COUNT(*) FROM cvms x WHERE x.workspace_id = $1 AND x.app_id = m.app_id \
     AND x.deleted_at_ms IS NULL) AS cvm_count, (SELECT MIN(y.created_at_ms) FROM cvms y \
     WHERE y.workspace_id = $1 AND y.app_id = m.app_id AND y.deleted_at_ms IS NULL) AS created_at_ms \
     FROM (SELECT c.app_id, MAX(c.id) AS newest ",
    matching!(),
    " GROUP BY c.app_id ORDER BY newest DESC LIMIT $9 OFFSET $10) m ORDER BY m.newest DESC"
);
const COUNT: &str = concat!("SELECT COUNT(DISTINCT c.app_id) ", matching!());
const OF_ID: &str = "SELECT app_id, COUNT(*) AS cvm_count, MIN(created_at_ms) AS created_at_ms FROM cvms \
     WHERE workspace_id = $1 AND app_id = $2 AND deleted_at_ms IS NULL GROUP BY app_id";
const FACETS: &str = "SELECT DISTINCT status, os_image_name, instance_type, kms_id, node_id FROM cvms \
     WHERE workspace_id = $1 AND deleted_at_ms IS NULL LIMIT 10000";

/// The newest CVMs of each of a page's applications; those of no application are shown at the cost of others.
static CVMS: LazyLock<String> = LazyLock::new(|| {
    let ids: Vec<String> = (0..MAX_PAGE).map(|index| format!("${}", index + 2)).collect();
    format!(
        "SELECT {columns} FROM (SELECT {columns}, ROW_NUMBER() OVER (PARTITION BY app_id ORDER BY id DESC) AS \
         nth FROM cvms WHERE workspace_id = $1 AND deleted_at_ms IS NULL AND app_id IN ({ids})) n \
         WHERE n.nth <= {MAX_CVMS_OF_APP} ORDER BY n.nth, n.id DESC LIMIT {MAX_CVMS_OF_PAGE}",
        columns = cvm_columns!(),
        ids = ids.join(", "),
    )
});

/// `LIKE` pattern of a part of a text.
fn pattern(part: &str) -> String {
    let mut pattern = String::from("%");
    for c in part.to_lowercase().chars() {
        if matches!(c, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(c);
    }
    pattern + "%"
}

/// A list for `matching!`; one without elements matches nothing.
fn list<T: ToString>(items: Option<&Vec<T>>) -> String {
    let Some(items) = items else { return String::new() };
    let items: Vec<String> = items.iter().map(|item| item.to_string().replace(',', "")).collect();
    format!(",{},", items.join(","))
}

macro_rules! bind_filter {
    ($query:expr, $filter:expr) => {
        $query
            .bind($filter.workspace_id)
            .bind($filter.search.as_deref().map(pattern).unwrap_or_default())
            .bind(list($filter.statuses.as_ref()))
            .bind($filter.listed.map_or(-1, i64::from))
            .bind($filter.base_image.clone().unwrap_or_default())
            .bind($filter.instance_type.clone().unwrap_or_default())
            .bind(list($filter.kms_ids.as_ref()))
            .bind(list($filter.node_ids.as_ref()))
    };
}

impl Store {
    /// A stretch of the applications that a filter matches, those with the newest matching CVM first.
    pub async fn apps(&self, filter: &AppFilter, limit: i64, offset: i64) -> Result<Vec<AppRow>> {
        let query = bind_filter!(sqlx::query_as(PAGE), filter);
        Ok(query.bind(limit).bind(offset).fetch_all(&self.pool).await?)
    }

    /// The application with this id, if a workspace has living CVMs of it.
    pub async fn app(&self, workspace_id: i64, app_id: AppId) -> Result<Option<AppRow>> {
        let query = sqlx::query_as(OF_ID).bind(workspace_id).bind(app_id.to_string());
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// How many applications a filter matches.
    pub async fn count_apps(&self, filter: &AppFilter) -> Result<i64> {
        let (count,): (i64,) = bind_filter!(sqlx::query_as(COUNT), filter).fetch_one(&self.pool).await?;
        Ok(count)
    }

    /// The newest living CVMs of at most 100 applications, newest first: at most 100 of each, and 1000
    /// in all.
    pub async fn cvms_of_apps(&self, workspace_id: i64, apps: &[AppId]) -> Result<Vec<CvmRow>> {
        let ids = apps.iter().map(ToString::to_string).chain(std::iter::repeat(String::new()));
        let mut query = sqlx::query_as(CVMS.as_str()).bind(workspace_id);
        for id in ids.take(MAX_PAGE) {
            query = query.bind(id);
        }
        let mut cvms: Vec<CvmRow> = query.fetch_all(&self.pool).await?;
        cvms.sort_unstable_by_key(|cvm| std::cmp::Reverse(cvm.id));
        Ok(cvms)
    }

    /// What the living CVMs of a workspace can be told apart by.
    pub async fn app_facets(&self, workspace_id: i64) -> Result<Vec<AppFacet>> {
        Ok(sqlx::query_as(FACETS).bind(workspace_id).fetch_all(&self.pool).await?)
    }
}
