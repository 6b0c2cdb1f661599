//! Text from outside, made harmless for a page.

use std::fmt;

/// Shows text so that no reader of HTML or SVG takes any of it for markup, in elements and in
/// quoted attributes.
///
/// Control characters that HTML does not allow are shown as the replacement character.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => write!(f, "{c}")?,
                c if c.is_control() => f.write_str("\u{fffd}")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_markup_is_left() {
        let text = "<script>alert(\"1\" & '2')</script>\u{0}\r";
        assert_eq!(
            Escaped(text).to_string(),
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let text = "p99.9 ≤ 1/15\nzwölf\tms";
        assert_eq!(Escaped(text).to_string(), text);
    }
}
