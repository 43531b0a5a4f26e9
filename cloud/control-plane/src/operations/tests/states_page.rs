//! docs/cvm-states.md: its tables are printed from the code, its words are not.

use std::path::Path;

use crate::fleet::table_of_remedies;
use crate::operations::{CvmStatus, OperationKind, Power, Rules, Step};

/// Every row of the table of operations.
pub(crate) fn all_rules() -> impl Iterator<Item = (OperationKind, Power, &'static Rules)> {
    OperationKind::ALL.iter().flat_map(|kind| {
        let powers: &[Power] = if kind.depends_on_power() { &[Power::On, Power::Off] } else { &[Power::On] };
        powers.iter().map(|power| (*kind, *power, kind.rules_for(*power)))
    })
}

/// Kinds that follow the same rules, in the order of the table.
fn groups() -> Vec<(String, &'static Rules)> {
    let mut groups: Vec<(String, &'static Rules)> = Vec::new();
    for (kind, power, rules) in all_rules() {
        let same = |(_, other): &&mut (String, &Rules)| format!("{other:?}") == format!("{rules:?}");
        let name = if power == Power::Off { format!("{kind} (off, stays off)") } else { kind.to_string() };
        match groups.iter_mut().find(same) {
            Some((names, _)) => *names = format!("{names}, {name}"),
            None => groups.push((name, rules)),
        }
    }
    groups
}

fn steps(steps: &[Step]) -> String {
    let steps: Vec<_> = steps.iter().map(|step| step.as_str()).collect();
    if steps.is_empty() { "–".to_owned() } else { steps.join(" → ") }
}

fn statuses(statuses: &[CvmStatus]) -> String {
    if statuses.len() == CvmStatus::ALL.len() {
        return "any".to_owned();
    }
    statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(", ")
}

const fn yes_no(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

fn operations() -> String {
    let mut table =
        String::from("| Operation | Steps | Undo | Cancellable | Preempts |\n|---|---|---|---|---|\n");
    for (kinds, rules) in groups() {
        table += &format!(
            "| {kinds} | {} | {} | {} | {} |\n",
            steps(rules.steps),
            steps(rules.undo),
            yes_no(rules.cancellable),
            yes_no(rules.preempts)
        );
    }
    table
}

fn moves() -> String {
    let mut table = String::from(
        "| Operation | From | During | Success | Undone | Failed, not undone | Cancelled, not undone |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (kinds, rules) in groups() {
        table += &format!(
            "| {kinds} | {} | {} | {} | {} | error | {} |\n",
            statuses(rules.from),
            rules.during,
            rules.target.map_or("gone", CvmStatus::as_str),
            rules.recovered.map_or("–", CvmStatus::as_str),
            if rules.cancellable { rules.after_cancel.as_str() } else { "–" },
        );
    }
    table
}

/// Replaces what is between the two marks of a table.
fn put(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: from the code -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{table}{end}{after}")
}

#[test]
fn the_page_shows_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cvm-states.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let tables = [("operations", operations()), ("moves", moves()), ("remedies", table_of_remedies())];
    let current = tables.iter().fold(page.clone(), |page, (name, table)| put(&page, name, table));
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(path, &current).unwrap();
    }
    assert!(
        page == current || std::env::var_os("INSTA_UPDATE").is_some(),
        "write it with INSTA_UPDATE=always"
    );
}
