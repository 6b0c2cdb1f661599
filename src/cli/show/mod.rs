//! What commands answer: for people on a terminal, or as JSON for programs.
//!
//! A command makes a [`Document`] of fields and tables. The same cells become text with units, or
//! JSON in which numbers are plain: bytes, milliseconds since 1970, messages.

mod cell;
mod charset;
mod clean;
mod document;
mod failure;
mod stop;
mod style;
mod table;
mod time;

pub use cell::{Cell, count, permissions, rate, span};
pub use charset::Charset;
pub use clean::{clean, clean_lines, escape_json};
pub use document::{Document, Format, Table};
pub use failure::{Failure, Outcome, exit};
pub use stop::{LOOK, Stop};
pub use style::{Colour, Style, terminal_size};
pub use table::{fit, layout, pad};
pub use time::{local_time, month_start, now_ms, parse_span, parse_time};
