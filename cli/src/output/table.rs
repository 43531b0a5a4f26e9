//! Tables for people: no frames, columns two spaces apart, statuses coloured on a terminal.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement};

use super::{Tone, printable};

/// Where a column's values stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows of text below fixed headings.
#[derive(Debug)]
pub(crate) struct Table {
    columns: &'static [(&'static str, Align)],
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) const fn new(columns: &'static [(&'static str, Align)]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; an empty value shows as `-`.
    pub(crate) fn row(&mut self, values: impl IntoIterator<Item = String>) {
        self.rows.push(values.into_iter().collect());
    }

    /// Whether there are no rows.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text of the table, each line ended.
    pub(crate) fn render(&self, colour: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(self.columns.iter().map(|(heading, _)| Cell::new(heading)));
        for row in &self.rows {
            table.add_row(row.iter().map(|value| cell(value)));
        }
        for (column, (_, align)) in table.column_iter_mut().zip(self.columns) {
            column.set_padding((0, 2)).set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        let mut text = String::new();
        for line in table.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn cell(value: &str) -> Cell {
    let text = printable(value).replace(['\n', '\t'], " ");
    let cell = Cell::new(if text.is_empty() { "-" } else { text.as_str() });
    match Tone::of_status(value) {
        Some(Tone::Good) => cell.fg(Color::Green),
        Some(Tone::Busy) => cell.fg(Color::Yellow),
        Some(Tone::Bad) => cell.fg(Color::Red),
        None => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_by_display_width_and_keeps_rows_on_one_line() {
        let mut table = Table::new(&[("NAME", Align::Left), ("VCPU", Align::Right), ("STATUS", Align::Left)]);
        table.row(["日本".to_owned(), "2".to_owned(), "running".to_owned()]);
        table.row(["two\nlines".to_owned(), "16".to_owned(), String::new()]);
        insta::assert_snapshot!(table.render(false), @"
        NAME       VCPU  STATUS
        日本          2  running
        two lines    16  -
        ");
    }
}
