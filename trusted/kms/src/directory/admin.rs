//! What the operator may change. The policy's own records say what was changed.

use cloister_kms_api::KmsError;
use cloister_kms_api::admin::{
    ALLOW_APP, FORGET_CVM, GET_POLICY, RETIRE_ROOT, REVOKE_APP, ROTATION_STATUS, SET_OWNERS,
    SET_PLATFORM_RULES, START_ROTATION,
};
use hyper::body::Incoming;
use serde_json::json;

use crate::door::{Answer, Shared, bad, json as json_answer, read};

pub(super) async fn answer(shared: &Shared, path: &str, body: Incoming) -> Result<Answer, KmsError> {
    let (keys, limit) = (&shared.keys, shared.limits.body);
    match path {
        GET_POLICY => return json_answer(&*keys.policy()),
        START_ROTATION => return json_answer(&keys.start_rotation().await?),
        ROTATION_STATUS => return json_answer(&keys.rotation_status()),
        RETIRE_ROOT => return json_answer(&keys.retire_root(read(body, limit).await?).await?),
        FORGET_CVM => return json_answer(&keys.forget_cvm(read(body, limit).await?).await?),
        ALLOW_APP => keys.allow_app(read(body, limit).await?).await?,
        REVOKE_APP => keys.revoke_app(read(body, limit).await?).await?,
        SET_OWNERS => keys.set_owners(read(body, limit).await?).await?,
        SET_PLATFORM_RULES => keys.set_platform_rules(read(body, limit).await?).await?,
        _ => return Err(bad("no such method; see the methods of the administration")),
    }
    json_answer(&json!({}))
}
