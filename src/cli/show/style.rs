//! Colour, and the terminal's size.

use std::io::IsTerminal;

/// What a piece of text is to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// A heading.
    Bold,
    /// What is of less weight.
    Dim,
    /// All is well.
    Green,
    /// Something is not.
    Red,
}

/// Whether there is colour, and how wide the text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Text is coloured.
    pub colour: bool,
    /// Columns of the terminal; `None`: as wide as it is.
    pub width: Option<usize>,
}

impl Style {
    /// Neither colour nor a limit.
    #[cfg(test)]
    pub const PLAIN: Style = Style {
        colour: false,
        width: None,
    };

    /// Of standard output: colour only on a terminal that has it, and never against `NO_COLOR`.
    pub fn of_stdout() -> Style {
        let is_terminal = std::io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Style {
            colour: is_terminal && !set("NO_COLOR") && !dumb,
            width: is_terminal.then(|| terminal_size().1),
        }
    }

    /// The text in a colour, where there is colour.
    pub fn paint(self, text: &str, colour: Colour) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Bold => "1",
            Colour::Dim => "2",
            Colour::Green => "32",
            Colour::Red => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Rows and columns of the terminal; 24 and 80 where it does not say.
pub fn terminal_size() -> (usize, usize) {
    let size = console::Term::stdout().size_checked().unwrap_or((24, 80));
    (usize::from(size.0).max(5), usize::from(size.1).max(20))
}
