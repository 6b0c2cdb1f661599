//! Columns that stand under each other.

use super::{Cell, Colour, Style};
use console::measure_text_width;

/// Least width that a column is made narrower to.
const WIDTH_MIN: usize = 8;
/// Between columns.
const GAP: usize = 2;

/// The text, cut to a width with `…` at its end.
pub fn fit(text: &str, width: usize) -> String {
    if measure_text_width(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = measure_text_width(c.encode_utf8(&mut [0; 4]));
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        out.push(c);
    }
    out.push('…');
    out
}

/// The text, cut or filled with blanks to a width.
pub fn pad(text: &str, width: usize, right: bool) -> String {
    let text = fit(text, width);
    let blanks = " ".repeat(width.saturating_sub(measure_text_width(&text)));
    if right {
        blanks + &text
    } else {
        text + &blanks
    }
}

/// Rows below their headings. Where they are wider than the terminal, the widest columns of text
/// are cut.
pub fn layout(headings: &[&str], rows: &[Vec<Cell>], style: Style) -> String {
    let shown: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(Cell::show).collect())
        .collect();
    let widest = |at: usize| {
        let cells = shown.iter().filter_map(|row| row.get(at));
        let widest = cells.map(|cell| measure_text_width(cell)).max();
        widest.unwrap_or(0).max(measure_text_width(headings[at]))
    };
    let mut widths: Vec<usize> = (0..headings.len()).map(widest).collect();
    let is_number = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        let mut kinds = cells.filter(|cell| **cell != Cell::None).peekable();
        kinds.peek().is_some() && kinds.all(Cell::is_number)
    };
    let right: Vec<bool> = (0..headings.len()).map(is_number).collect();
    narrow(&mut widths, &right, style.width);

    let mut out = String::new();
    let last = headings.len().saturating_sub(1);
    let mut line = |cells: &mut dyn Iterator<Item = (usize, String, Option<Colour>)>| {
        let mut text = String::new();
        for (at, cell, colour) in cells {
            let padded = match at == last && !right[at] {
                true => fit(&cell, widths[at]),
                false => pad(&cell, widths[at], right[at]),
            };
            match colour.filter(|_| !cell.is_empty()) {
                Some(colour) => text.push_str(&style.paint(&padded, colour)),
                None => text.push_str(&padded),
            }
            if at < last {
                text.push_str(&" ".repeat(GAP));
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(
        &mut headings
            .iter()
            .enumerate()
            .map(|(at, text)| (at, (*text).to_owned(), Some(Colour::Dim))),
    );
    for (row, texts) in rows.iter().zip(shown) {
        let colours = row.iter().map(|cell| match cell {
            Cell::Good(_) => Some(Colour::Green),
            Cell::Bad(_) => Some(Colour::Red),
            _ => None,
        });
        line(
            &mut texts
                .into_iter()
                .zip(colours)
                .enumerate()
                .map(|(at, (text, colour))| (at, text, colour)),
        );
    }
    out
}

fn narrow(widths: &mut [usize], right: &[bool], limit: Option<usize>) {
    let Some(limit) = limit else { return };
    let gaps = GAP * widths.len().saturating_sub(1);
    loop {
        let total = widths.iter().sum::<usize>() + gaps;
        let texts = widths.iter_mut().zip(right).filter(|(_, right)| !**right);
        let Some((widest, _)) = texts.max_by_key(|(width, _)| **width) else {
            return;
        };
        if total <= limit || *widest <= WIDTH_MIN {
            return;
        }
        *widest = (*widest - 1).max(widest.saturating_sub(total - limit).max(WIDTH_MIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            vec![
                Cell::text("日本-topic"),
                Cell::Count(5),
                Cell::Bad("r".into()),
            ],
            vec![Cell::text("T"), Cell::Count(12345), Cell::None],
        ]
    }

    #[test]
    fn columns_stand_under_each_other() {
        let text = layout(&["TOPIC", "MESSAGES", "PERM"], &rows(), Style::PLAIN);
        assert_eq!(
            text,
            "TOPIC       MESSAGES  PERM\n日本-topic         5  r\nT             12,345  -\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_text_and_no_number() {
        let style = Style {
            colour: false,
            width: Some(24),
        };
        let text = layout(&["TOPIC", "MESSAGES", "PERM"], &rows(), style);
        assert_eq!(
            text,
            "TOPIC     MESSAGES  PERM\n日本-to…         5  r\nT           12,345  -\n"
        );
    }

    #[test]
    fn colour_is_around_the_cells_that_have_it() {
        let style = Style {
            colour: true,
            width: None,
        };
        let text = layout(&["A"], &[vec![Cell::Bad("x".into())]], style);
        assert_eq!(text, "\x1b[2mA\x1b[0m\n\x1b[31mx\x1b[0m\n");
    }

    #[test]
    fn text_fits() {
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "ab…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(pad("a", 3, true), "  a");
    }
}
