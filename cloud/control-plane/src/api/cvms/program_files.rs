//! The two programs of a compose document that are read and replaced as files.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use cloister_management_api::CvmUpdate;
use serde_json::json;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Approval, Edit, Manner, Text};
use crate::api::conditional::Expected;
use crate::api::error::{ApiError, ApiResult};
use crate::api::target::Target;
use crate::api::view::Shown;
use crate::operations::OperationKind;
use crate::store::{Caller, CvmRow};

/// A program of the document: how it is called, sent, found and checked.
pub(super) struct ProgramFile {
    /// Member of the document.
    member: &'static str,
    /// What people call it.
    name: &'static str,
    /// What is taken for it.
    accepted: Text,
    /// What is answered.
    content_type: &'static str,
    find: for<'a> fn(Shown<'a>) -> Option<Cow<'a, str>>,
    /// Refuses it for a CVM that would not run it.
    check: fn(&Edit<'_>) -> ApiResult<()>,
}

pub(super) const COMPOSE_FILE: ProgramFile = ProgramFile {
    member: "docker_compose_file",
    name: "compose file",
    accepted: changes::YAML,
    content_type: "text/yaml; charset=utf-8",
    find: |document| document.docker_compose_file,
    check: |edit| edit.check_runner(),
};

pub(super) const PRE_LAUNCH_SCRIPT: ProgramFile = ProgramFile {
    member: "pre_launch_script",
    name: "pre-launch script",
    accepted: changes::SCRIPT,
    content_type: "text/plain; charset=utf-8",
    find: |document| document.pre_launch_script,
    check: |_| Ok(()),
};

impl ProgramFile {
    /// The file of a CVM as it is; empty where there is none.
    pub(super) fn of(&self, cvm: &CvmRow) -> Response {
        ([(CONTENT_TYPE, self.content_type)], self.text(cvm)).into_response()
    }

    fn text(&self, cvm: &CvmRow) -> String {
        (self.find)(Shown::of(&cvm.app_compose)).unwrap_or_default().into_owned()
    }
}

/// A request for another program of a CVM, whose body was not read yet.
pub(crate) struct Replacement {
    api: Api,
    caller: Arc<Caller>,
    cvm: CvmRow,
    approval: Approval,
    expected: Expected,
    request: Request,
}

impl FromRequest<Api> for Replacement {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> ApiResult<Self> {
        let (mut parts, body) = request.into_parts();
        let Auth(caller) = Auth::from_request_parts(&mut parts, api).await?;
        let Target(cvm) = Target::from_request_parts(&mut parts, api).await?;
        let Ok(approval) = Approval::from_request_parts(&mut parts, api).await;
        let Ok(expected) = Expected::from_request_parts(&mut parts, api).await;
        let request = Request::from_parts(parts, body);
        Ok(Self { api: api.clone(), caller, cvm, approval, expected, request })
    }
}

impl Replacement {
    /// Accepts the body as this file; the rest of the document stays.
    pub(super) async fn of(self, file: &ProgramFile) -> ApiResult<CvmUpdate> {
        self.expected.check(&[file.text(&self.cvm).as_bytes()])?;
        let text = file.accepted.read(self.request).await?;
        let mut edit = Edit::of(&self.cvm);
        (file.check)(&edit)?;
        edit.members(vec![(file.member, json!(text))])?;
        let (kind, manner) = (OperationKind::ComposeUpdate, Manner::of(self.approval));
        let correlation_id = changes::accept(&self.api, &self.caller, edit, kind, manner).await?;
        Ok(changes::in_progress(correlation_id, &format!("The {} is being replaced", file.name)))
    }
}
