//! A line on the terminal while a run lasts.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// The line; nothing where standard error is no terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// On standard error.
    pub fn new() -> Progress {
        if !io::stderr().is_terminal() {
            return Progress::hidden();
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// Nothing is shown.
    pub fn hidden() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
        }
    }

    /// A part of the run begins, e.g. `measuring`.
    pub fn part(&self, name: &str) {
        self.bar.set_prefix(name.to_owned());
        self.bar.set_message("");
    }

    /// Figures of this moment.
    pub fn show(&self, text: String) {
        self.bar.set_message(text);
    }

    /// The line goes away.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
