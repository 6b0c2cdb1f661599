//! What a command answers.

use super::table::layout;
use super::{Cell, Colour, Style, clean_lines, escape_json};
use clap::ValueEnum;
use console::measure_text_width;
use serde_json::{Map, Value};

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people.
    #[default]
    Table,
    /// One JSON object for programs.
    Json,
}

/// An answer: fields, tables and remarks in their order.
#[derive(Clone, Debug, Default)]
pub struct Document {
    parts: Vec<Part>,
    /// What was not done while other things were; each is said on standard error.
    pub faults: Vec<String>,
}

#[derive(Clone, Debug)]
enum Part {
    Field(&'static str, &'static str, Cell),
    Table(Table),
    Text(&'static str, String),
    Note(String),
    Json(&'static str, Value),
}

/// Rows of cells under headings.
#[derive(Clone, Debug)]
pub struct Table {
    key: &'static str,
    columns: Vec<(&'static str, &'static str)>,
    rows: Vec<Vec<Cell>>,
    empty: &'static str,
    people_only: bool,
}

impl Table {
    /// A table that is called `key` in JSON, with a JSON name and a heading for each column. `empty`
    /// is said in place of a table without rows.
    pub fn new(
        key: &'static str,
        columns: &[(&'static str, &'static str)],
        empty: &'static str,
    ) -> Table {
        Table {
            key,
            columns: columns.to_vec(),
            rows: Vec::new(),
            empty,
            people_only: false,
        }
    }

    /// Leaves the table out of JSON, where something else stands for it.
    #[must_use]
    pub fn for_people(mut self) -> Table {
        self.people_only = true;
        self
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let members = self.columns.iter().zip(row);
            Value::Object(
                members
                    .map(|((key, _), cell)| ((*key).to_owned(), cell.json()))
                    .collect(),
            )
        });
        Value::Array(rows.collect())
    }

    fn text(&self, style: Style) -> String {
        if self.rows.is_empty() {
            return format!("{}\n", self.empty);
        }
        let headings: Vec<&str> = self.columns.iter().map(|(_, heading)| *heading).collect();
        layout(&headings, &self.rows, style)
    }
}

impl Document {
    /// An answer without anything in it.
    pub fn new() -> Document {
        Document::default()
    }

    /// Adds a value with its JSON name and its label.
    #[must_use]
    pub fn field(mut self, key: &'static str, label: &'static str, cell: Cell) -> Document {
        self.parts.push(Part::Field(key, label, cell));
        self
    }

    /// Adds a table.
    #[must_use]
    pub fn table(mut self, table: Table) -> Document {
        self.parts.push(Part::Table(table));
        self
    }

    /// Adds text of several lines.
    #[must_use]
    pub fn text(mut self, key: &'static str, text: impl Into<String>) -> Document {
        self.parts.push(Part::Text(key, text.into()));
        self
    }

    /// Adds a remark that is for people only.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Document {
        self.parts.push(Part::Note(text.into()));
        self
    }

    /// Adds a value that is for people only.
    #[must_use]
    pub fn label(mut self, label: &'static str, cell: Cell) -> Document {
        self.parts.push(Part::Field("", label, cell));
        self
    }

    /// Adds several lines that are for people only.
    #[must_use]
    pub fn note_lines(mut self, text: impl Into<String>) -> Document {
        self.parts.push(Part::Text("", text.into()));
        self
    }

    /// Adds what is for programs only.
    #[must_use]
    pub fn for_programs(mut self, key: &'static str, value: Value) -> Document {
        self.parts.push(Part::Json(key, value));
        self
    }

    /// Adds what was not done.
    #[must_use]
    pub fn faults(mut self, faults: Vec<String>) -> Document {
        self.faults.extend(faults);
        self
    }

    /// One JSON object, fields and tables by name.
    pub fn json(&self) -> Value {
        let mut members = Map::new();
        for part in &self.parts {
            match part {
                Part::Field("", ..) | Part::Text("", _) => None,
                Part::Field(key, _, cell) => members.insert((*key).to_owned(), cell.json()),
                Part::Table(table) if table.people_only => None,
                Part::Table(table) => members.insert(table.key.to_owned(), table.json()),
                Part::Json(key, value) => members.insert((*key).to_owned(), value.clone()),
                Part::Text(key, text) => members.insert((*key).to_owned(), text.as_str().into()),
                Part::Note(_) => None,
            };
        }
        if !self.faults.is_empty() {
            members.insert("faults".to_owned(), self.faults.clone().into());
        }
        Value::Object(members)
    }

    /// Text for people.
    pub fn show(&self, style: Style) -> String {
        let labels = self.parts.iter().filter_map(|part| match part {
            Part::Field(_, label, _) => Some(measure_text_width(label)),
            _ => None,
        });
        let label_width = labels.max().unwrap_or(0);
        let mut out = String::new();
        let mut after_field = false;
        let for_people = |part: &&Part| !matches!(part, Part::Json(..));
        for part in self.parts.iter().filter(for_people) {
            let is_field = matches!(part, Part::Field(..));
            if !out.is_empty() && (!is_field || !after_field) {
                out.push('\n');
            }
            after_field = is_field;
            match part {
                Part::Field(_, label, cell) => {
                    let label = super::pad(label, label_width, false);
                    let shown = match cell {
                        Cell::Good(_) => style.paint(&cell.show(), Colour::Green),
                        Cell::Bad(_) => style.paint(&cell.show(), Colour::Red),
                        _ => cell.show(),
                    };
                    out.push_str(&format!("{}  {shown}\n", style.paint(&label, Colour::Dim)));
                }
                Part::Table(table) => out.push_str(&table.text(style)),
                Part::Text(_, text) => {
                    out.push_str(&clean_lines(text));
                    if !text.ends_with('\n') {
                        out.push('\n');
                    }
                }
                Part::Note(text) => out.push_str(&format!("{}\n", super::clean(text))),
                Part::Json(..) => {}
            }
        }
        out
    }

    /// Either of them, as it is written.
    pub fn render(&self, format: Format, style: Style) -> String {
        match format {
            Format::Table => self.show(style),
            Format::Json => {
                let text = serde_json::to_string_pretty(&self.json());
                // A value has text keys only, which always can be written.
                let text = text.expect("a JSON value can be written");
                escape_json(&text).into_owned() + "\n"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Document {
        let mut table = Table::new("rows", &[("name", "NAME"), ("n", "N")], "no rows");
        table.row([Cell::text("a\x1b"), Cell::Count(1000)]);
        Document::new()
            .field("topic", "Topic", Cell::text("T"))
            .field("total", "Total messages", Cell::Count(12345))
            .table(table)
            .table(Table::new("none", &[("x", "X")], "nothing there"))
            .text("stack", "at a\n  at b\u{9b}")
            .note("for people")
            .faults(vec!["broker b: silent".to_owned()])
    }

    #[test]
    fn people_read_units_and_no_controls() {
        assert_eq!(
            document().show(Style::PLAIN),
            "Topic           T\nTotal messages  12,345\n\nNAME         N\na\\u{1b}  1,000\n\nnothing there\n\n\
             at a\n  at b\\u{9b}\n\nfor people\n"
        );
    }

    #[test]
    fn programs_read_plain_values() {
        let expected = json!({
            "topic": "T", "total": 12345, "rows": [{"name": "a\u{1b}", "n": 1000}],
            "none": [], "stack": "at a\n  at b\u{9b}", "faults": ["broker b: silent"],
        });
        assert_eq!(document().json(), expected);
        let text = document().render(Format::Json, Style::PLAIN);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }
}
