//! Text from the network reaches a terminal without anything that a terminal obeys.

use std::borrow::Cow;

/// Whether a character is obeyed instead of shown: controls, and what turns the direction of text.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text with everything that a terminal obeys written as an escape: `\n`, `\u{1b}`.
pub fn clean(text: &str) -> Cow<'_, str> {
    replace(text, |_| false)
}

/// The same for text of several lines: line ends and tabs stay.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    replace(text, |c| matches!(c, '\n' | '\t'))
}

fn replace(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |c: char| is_obeyed(c) && !stays(c);
    if !text.chars().any(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_bad(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
        }
    }
    Cow::Owned(out)
}

/// JSON with the characters that it may leave as they are, but a terminal obeys, as escapes.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let is_bad = |c: char| is_obeyed(c) && c != '\n';
    if !json.chars().any(is_bad) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_bad(c) {
            // All of them are in the first plane.
            out.push_str(&format!("\\u{:04x}", c as u32));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_that_a_terminal_obeys_passes() {
        assert_eq!(clean("plain 日本 é"), "plain 日本 é");
        assert_eq!(
            clean("a\x1b[31m\n\r\t\u{7f}\u{9b}2J\u{202e}b"),
            "a\\u{1b}[31m\\n\\r\\t\\u{7f}\\u{9b}2J\\u{202e}b"
        );
        assert_eq!(clean_lines("a\n\tb\rc\0"), "a\n\tb\\rc\\u{0}");
    }

    proptest! {
        #[test]
        fn escaped_json_says_the_same(text: String) {
            let json = serde_json::to_string(&text).unwrap();
            let escaped = escape_json(&json);
            prop_assert!(!escaped.chars().any(is_obeyed));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }

        #[test]
        fn clean_text_is_clean(text: String) {
            prop_assert!(!clean(&text).chars().any(is_obeyed));
        }
    }
}
