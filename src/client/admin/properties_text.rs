//! Java's properties as text, `key=value` a line: what broker and nameserver settings travel as.

/// Reads `key=value` lines in their order. Comments and empty lines are passed over, Java's escapes
/// are resolved; lines without `=` have an empty value.
pub fn from_properties_text(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim_start);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '!']))
        .map(|line| {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            (plain(key.trim_end()), plain(value.trim_start()))
        })
        .collect()
}

/// `key=value` lines for the given pairs. Line breaks and backslashes are escaped as Java reads them.
pub fn to_properties_text<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (key, value) in pairs {
        escape(&mut out, key, true);
        out.push('=');
        escape(&mut out, value, false);
        out.push('\n');
    }
    out
}

fn escape(out: &mut String, text: &str, is_key: bool) {
    for (at, c) in text.chars().enumerate() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '=' | ':' if is_key => out.extend(['\\', c]),
            '#' | '!' if is_key && at == 0 => out.extend(['\\', c]),
            ' ' if is_key || at == 0 => out.push_str("\\ "),
            _ => out.push(c),
        }
    }
}

fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let unit = u32::from_str_radix(&digits, 16).ok();
                out.push(unit.and_then(char::from_u32).unwrap_or('\u{fffd}'));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_again(key in "[a-z#!:= ]{1,8}", value in "\\PC{0,12}") {
            let text = to_properties_text([(key.as_str(), value.as_str())]);
            // A key of Java's has no blanks at its ends, and a value none at its start.
            prop_assume!(key.trim() == key);
            let read = from_properties_text(&text);
            let value = if value.starts_with(' ') { value } else { value.trim_start().to_owned() };
            if !key.contains('=') {
                prop_assert_eq!(read, vec![(key, value)]);
            }
        }
    }

    #[test]
    fn brokers_settings_are_read() {
        let text = "#comment\n\nbrokerName=a\n  listenPort = 10911\nmessageDelayLevel=1s 5s\nempty=\nbare\npath=C\\:\\\\x\\u0041\n";
        let read = from_properties_text(text);
        let pairs: Vec<_> = read.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("brokerName", "a"),
                ("listenPort", "10911"),
                ("messageDelayLevel", "1s 5s"),
                ("empty", ""),
                ("bare", ""),
                ("path", "C:\\xA"),
            ]
        );
    }
}
