//! What became of a change: its operation says more than the CVM's status.

use cloister_management_api::{Operation, OperationPage};

use crate::api::{Client, read};
use crate::failure::{Exit, Failure};

/// Operations that are looked through for the one that was asked for; only later ones come before it.
const LOOK_THROUGH: &str = "20";

/// Whether the operation reached its goal. `followed` is how waiting for the CVM ended.
pub(crate) async fn of_operation(
    client: &Client,
    cvm: &str,
    name: &str,
    correlation_id: &str,
    followed: Result<(), Failure>,
) -> Result<(), Failure> {
    if let Err(failure) = &followed
        && failure.exit != Exit::Failed
    {
        return followed;
    }
    let document = client.get(&["cvms", cvm, "operations"], &[("limit", LOOK_THROUGH)]).await?;
    let page: OperationPage = read(&document)?;
    let operation =
        page.items.into_iter().find(|operation| operation.correlation_id.to_string() == correlation_id);
    match operation {
        Some(operation) if operation.status == "failed" => {
            Err(taken_back(client, cvm, name, &operation).await)
        }
        _ => followed,
    }
}

async fn taken_back(client: &Client, cvm: &str, name: &str, operation: &Operation) -> Failure {
    let reason = operation.error_message.as_deref().unwrap_or("no reason was given");
    let status = match super::follow::detail(client, cvm).await {
        Ok((_, detail)) => detail.status,
        Err(_) => "in an unknown state".to_owned(),
    };
    let now = match status.as_str() {
        "running" | "stopped" => format!("{name} has its former configuration and is {status}"),
        other => format!("{name} is {other}"),
    };
    Failure::new(Exit::Failed, format!("the change was not made: {reason}; {now}"))
        .hint(format!("see every step: cloister operations list {name}"))
        .hint(format!("see what its application said: cloister cvms logs {name}"))
}
