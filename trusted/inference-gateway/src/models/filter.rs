//! The filters of a list of models.

use url::form_urlencoded;

use crate::error::GatewayError;
use crate::routing::Route;

/// Which routes count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// Only those with zero data retention.
    pub(super) zdr: bool,
    /// Only those of which it can be proved what they are.
    pub(super) tee: bool,
}

impl Filter {
    /// Reads a query. `true`, `1` and nothing switch a filter on, `false` and `0` off; parameters that are not known
    /// are passed over.
    pub(super) fn parse(query: &str) -> Result<Self, GatewayError> {
        let (mut zdr, mut tee) = (None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let (name, place) = match name.as_ref() {
                "zdr" => ("zdr", &mut zdr),
                "tee" => ("tee", &mut tee),
                _ => continue,
            };
            let is_on = match value.as_ref() {
                "true" | "1" | "" => true,
                "false" | "0" => false,
                _ => return Err(GatewayError::parameter(name, format!("'{name}' must be true or false"))),
            };
            if place.replace(is_on).is_some() {
                return Err(GatewayError::parameter(name, format!("'{name}' appears twice")));
            }
        }
        Ok(Self { zdr: zdr.unwrap_or_default(), tee: tee.unwrap_or_default() })
    }

    /// Whether a route counts.
    pub(super) fn admits(self, route: &Route) -> bool {
        (!self.zdr || route.upstream.zdr) && (!self.tee || route.is_tee())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_for_on_and_off() {
        for (query, zdr, tee) in [
            ("", false, false),
            ("zdr=true", true, false),
            ("zdr=1&tee=1", true, true),
            ("zdr", true, false),
            ("zdr=", true, false),
            ("zdr=0&tee=false&other=%zz", false, false),
            ("%7Adr=tru%65", true, false),
        ] {
            assert_eq!(Filter::parse(query), Ok(Filter { zdr, tee }), "{query}");
        }
        for (query, param) in [("zdr=yes", "zdr"), ("tee=TRUE", "tee"), ("zdr=1&zdr=1", "zdr")] {
            assert_eq!(Filter::parse(query).unwrap_err().param.as_deref(), Some(param), "{query}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_come(query in "[ -~]{0,60}") {
            let _ = Filter::parse(&query);
        }
    }
}
