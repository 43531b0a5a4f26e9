//! Names of replicas: that of the source with a number.

use cloister_management_api::MAX_NAME;

/// Highest number of a replica's name; far above the CVMs that a workspace has of one application.
const MAX_NUMBER: u32 = 10_000;
/// Stands between the source's name and the number.
const MARK: &str = "-r";

/// Names for a replica of a CVM with this name, in the order in which they are tried: `web-r2`, `web-r3`, …,
/// also for a replica of `web-r2`. Long names are cut before the mark.
pub(super) fn candidates(source: &str) -> impl Iterator<Item = String> {
    let stem = stem(source).to_owned();
    (2..=MAX_NUMBER).map(move |number| {
        let suffix = format!("{MARK}{number}");
        let cut: String = stem.chars().take(MAX_NAME - suffix.len()).collect();
        format!("{}{suffix}", cut.trim_end_matches('-'))
    })
}

/// A name without the number of a replica.
fn stem(name: &str) -> &str {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once(MARK) {
        Some((stem, digits)) if !stem.is_empty() && is_number(digits) => stem,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use cloister_management_api::CvmName;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_follow_the_name_of_the_first() {
        let first = |name: &str| candidates(name).next().unwrap();
        assert_eq!(first("my-app"), "my-app-r2");
        assert_eq!(first("my-app-r2"), "my-app-r2");
        assert_eq!(candidates("my-app-r7").nth(8).unwrap(), "my-app-r10");
        assert_eq!(first("my-app-r"), "my-app-r-r2");
        assert_eq!(first(&format!("{}-b", "a".repeat(59))), format!("{}-r2", "a".repeat(59)));
    }

    proptest! {
        #[test]
        fn every_candidate_is_a_name(source in "[a-zA-Z](-?[a-zA-Z0-9]){4,62}", nth in 0usize..9_998) {
            prop_assume!(source.parse::<CvmName>().is_ok());
            let name = candidates(&source).nth(nth).unwrap();
            prop_assert!(name.parse::<CvmName>().is_ok(), "{}", name);
        }
    }
}
