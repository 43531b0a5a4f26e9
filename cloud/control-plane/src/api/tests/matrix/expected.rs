//! What a cell of the matrix should be, and why some are another.

use cloister_management_api::KeyScope;

use crate::api::access::{Access, Rule};

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Right,
    NoKey,
    BadKey,
    ReadKey,
    Foreign,
    ForeignWrong,
    Unknown,
    Malformed,
    NotText,
    UnknownMember,
    WrongType,
    Missing,
    Huge,
    ContentType,
}

pub(super) const COLUMNS: [Column; 14] = [
    Column::Right,
    Column::NoKey,
    Column::BadKey,
    Column::ReadKey,
    Column::Foreign,
    Column::ForeignWrong,
    Column::Unknown,
    Column::Malformed,
    Column::NotText,
    Column::UnknownMember,
    Column::WrongType,
    Column::Missing,
    Column::Huge,
    Column::ContentType,
];

impl Column {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Right => "nothing wrong",
            Self::NoKey => "no key",
            Self::BadKey => "bad key",
            Self::ReadKey => "read key",
            Self::Foreign => "foreign id",
            Self::ForeignWrong => "foreign id, wrong body",
            Self::Unknown => "unknown id",
            Self::Malformed => "malformed id",
            Self::NotText => "id of no text",
            Self::UnknownMember => "unknown member",
            Self::WrongType => "wrong types",
            Self::Missing => "missing members",
            Self::Huge => "2 MiB",
            Self::ContentType => "as XML",
        }
    }
}

/// What a cell is by rule, where `right` is the cell of the request that nothing is wrong with; `None` where no rule
/// says.
pub(super) fn wanted<'a>(rule: &Rule, column: Column, right: &'a str) -> Option<&'a str> {
    let is_keyed = matches!(rule.access, Access::AnyKey | Access::Key(_));
    Some(match column {
        Column::Right if right.starts_with('2') => right,
        Column::Right => return None,
        Column::NoKey | Column::BadKey if is_keyed => "401 plain",
        Column::ReadKey if is_keyed && !reads(rule) => "403 plain",
        Column::NoKey | Column::BadKey | Column::ReadKey | Column::UnknownMember | Column::ContentType => {
            right
        }
        Column::NotText => "404 plain",
        Column::Foreign | Column::ForeignWrong | Column::Unknown | Column::Malformed
            if matches!(rule.access, Access::SignedUrl | Access::CommitToken) =>
        {
            right
        }
        Column::Foreign if rule.access == Access::Public => right,
        // Nothing is said of a body for what the caller may not have.
        Column::Foreign | Column::ForeignWrong if rule.path.contains("{cvm_id}") => "403 ERR-03-004",
        Column::Foreign | Column::ForeignWrong | Column::Unknown | Column::Malformed => {
            if rule.path.contains("{cvm_id}") { "404 ERR-03-001" } else { "404 plain" }
        }
        Column::WrongType | Column::Missing => "422 validation",
        Column::Huge => "413 plain",
    })
}

fn reads(rule: &Rule) -> bool {
    match rule.access {
        Access::Key(scope) => KeyScope::Read.includes(scope),
        _ => true,
    }
}

/// Why a cell of some operations is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reason<'a> {
    operations: &'a str,
    column: &'a str,
    cell: &'a str,
}

impl<'a> Reason<'a> {
    /// Reads a line: operations by commas, title of the column, cell, and in words why.
    pub(super) fn read(line: &'a str) -> Self {
        let [operations, column, cell, why] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("four parts: {line}")
        };
        assert!(why.len() > 10, "in words: {line}");
        Self { operations, column, cell }
    }

    pub(super) fn is_for(&self, operation: &str, column: Column, cell: &str) -> bool {
        self.column == column.title()
            && self.cell == cell
            && self.operations.split(", ").any(|name| name == operation)
    }
}
