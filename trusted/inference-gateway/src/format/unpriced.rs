//! What an upstream would charge for beside tokens, which prices know nothing of: served only where the operator says
//! so, by naming it among a model's `supported_parameters`.

use serde_json::value::RawValue;

use super::features::MAX_ENTRIES;
use crate::body::{Body, Few, members, object};
use crate::error::{GatewayError, shown};
use crate::surface::Surface;

/// Tiers at which tokens cost what they always do, or less.
const TIERS: [&str; 4] = ["auto", "default", "flex", "standard_only"];
/// Members that have an upstream search, run or fetch something.
const SERVICES: [&str; 3] = ["web_search_options", "mcp_servers", "plugins"];
/// Members by which an upstream that is a gateway itself answers with another model.
const OTHER_MODELS: [&str; 2] = ["models", "fallbacks"];
/// Beginnings of the types of tools that the client runs itself, on the Messages surface.
const OWN_TOOLS: [&str; 5] = ["custom", "bash_", "text_editor_", "computer_", "memory_"];

members! {
    struct Tool { kind as "type" }
}

/// Refuses what has no price, naming the member.
pub(super) fn check(
    surface: Surface,
    body: &Body<'_>,
    supported: Option<&[String]>,
) -> Result<(), GatewayError> {
    let is_named = |name: &str| supported.is_some_and(|names| names.iter().any(|known| known == name));
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).unwrap_or_default();
    if let Some(tier) = body.raw("service_tier").map(text)
        && !TIERS.contains(&tier.as_str())
        && !is_named("service_tier")
    {
        return Err(refused("service_tier", "must be 'auto', 'default', 'flex' or 'standard_only'"));
    }
    if let Some(name) = SERVICES.into_iter().find(|name| body.raw(name).is_some() && !is_named(name)) {
        return Err(refused(name, "is not served: it has no price"));
    }
    if let Some(name) = OTHER_MODELS.into_iter().find(|name| body.raw(name).is_some() && !is_named(name)) {
        return Err(refused(name, "is not served: 'model' names the one that answers"));
    }
    let Some(tools) = body.raw("tools") else { return Ok(()) };
    let tools = serde_json::from_str::<Few<&RawValue, MAX_ENTRIES>>(tools.get());
    let Few(tools) =
        tools.map_err(|_| refused("tools", &format!("must have at most {MAX_ENTRIES} entries")))?;
    for (index, tool) in tools.iter().enumerate() {
        let at = format!("tools[{index}]");
        let tool: Tool<'_> =
            object(tool.get()).ok_or_else(|| refused(&at, "must be an object with each member once"))?;
        let kind = tool.kind.read::<String>();
        if let Some(kind) = kind.filter(|kind| !is_own(surface, kind) && !is_named(kind)) {
            let kind = shown(&kind);
            let what = format!("is of the type '{kind}', which is not served: it has no price");
            return Err(refused(&at, &what));
        }
    }
    Ok(())
}

/// Whether the client runs such a tool itself.
fn is_own(surface: Surface, kind: &str) -> bool {
    match surface {
        Surface::Messages => OWN_TOOLS.iter().any(|begin| kind.starts_with(begin)),
        Surface::Responses => matches!(kind, "function" | "custom" | "local_shell" | "apply_patch"),
        _ => matches!(kind, "function" | "custom"),
    }
}

fn refused(name: &str, what: &str) -> GatewayError {
    GatewayError::parameter(name, format!("'{name}' {what}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(surface: Surface, body: &Value, supported: Option<&[&str]>) -> Option<String> {
        let supported =
            supported.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let bytes = body.to_string().into_bytes();
        let checked = check(surface, &Body::parse(&bytes).unwrap(), supported.as_deref());
        checked.err().map(|error| {
            assert_eq!(error.status().as_u16(), 400);
            error.param.unwrap()
        })
    }

    #[test]
    fn what_has_no_price_is_served_only_where_it_is_named() {
        use Surface::{Chat, Messages, Responses};
        let tool = |kind: &str| json!({"tools": [{"type": kind, "name": "f"}]});
        let first = Some("tools[0]");
        for (surface, body, param) in [
            (Chat, json!({"service_tier": "auto"}), None),
            (Chat, json!({"service_tier": "default"}), None),
            (Chat, json!({"service_tier": null}), None),
            (Messages, json!({"service_tier": "standard_only"}), None),
            (Chat, json!({"service_tier": "priority"}), Some("service_tier")),
            (Chat, json!({"service_tier": ""}), Some("service_tier")),
            (Chat, json!({"web_search_options": {}}), Some("web_search_options")),
            (Messages, json!({"mcp_servers": []}), Some("mcp_servers")),
            (Chat, tool("function"), None),
            (Chat, tool("web_search"), first),
            (Responses, tool("function"), None),
            (Responses, tool("local_shell"), None),
            (Responses, tool("web_search_preview"), first),
            (Responses, tool("code_interpreter"), first),
            (Responses, tool("mcp"), first),
            (Messages, tool("custom"), None),
            (Messages, tool("bash_20250124"), None),
            (Messages, tool("web_search_20250305"), first),
            (Messages, tool("code_execution_20250522"), first),
            (Messages, json!({"tools": [{"name": "f", "input_schema": {}}]}), None),
            (Chat, json!({"tools": [{"type": "function"}, {"type": "a\nb"}]}), Some("tools[1]")),
            (Chat, json!({"tools": ["function"]}), Some("tools[0]")),
        ] {
            assert_eq!(refusal(surface, &body, None).as_deref(), param, "{body}");
            assert_eq!(refusal(surface, &body, Some(&["tools"])).as_deref(), param, "{body}");
        }
        let named = ["service_tier", "web_search", "web_search_options"];
        for body in
            [json!({"service_tier": "priority"}), tool("web_search"), json!({"web_search_options": {}})]
        {
            assert_eq!(refusal(Chat, &body, Some(&named)), None, "{body}");
        }
    }
}
