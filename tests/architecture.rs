//! The shape of the source: arrows between modules point down, files stay readable,
//! nothing is left undone.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules from top to bottom. One may use what stands below it, and nothing that
/// stands above it or beside it.
const LAYERS: &[&[&str]] = &[
    &["main", "cli"],
    &["server"],
    &["broker"],
    &["nameserver"],
    &["client"],
    &["shard"],
    &["store"],
    &["reactor", "probe", "local_event", "large_alloc"],
    &["config", "bell"],
    &["wire"],
];

/// Most lines of one file.
const LINES_MAX: usize = 700;

/// Where the runtime's types may appear, so that it can be replaced there.
const RUNTIME_PLACES: &[&[&str]] = &[&["client", "net"], &["reactor"], &["probe"]];

struct Source {
    path: PathBuf,
    /// Modules from the root, e.g. `["broker", "send"]`.
    module: Vec<String>,
    text: String,
}

impl Source {
    fn top(&self) -> &str {
        self.module.first().map_or("lib", String::as_str)
    }

    /// Lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        lines.map(|(n, line)| (n + 1, line.split("//").next().unwrap_or("")))
    }
}

fn sources() -> Vec<Source> {
    let found = sources_below("src");
    assert!(found.len() > 50, "only {} files below src", found.len());
    found
}

/// The bench harness, which is part of the binary, too: limits of files hold there as well.
fn all_sources() -> Vec<Source> {
    let mut all = sources();
    let bench = sources_below("bench");
    assert!(bench.len() > 20, "only {} files below bench", bench.len());
    all.extend(bench);
    all
}

fn sources_below(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let inner = path
                    .strip_prefix(&root)
                    .expect("below src")
                    .with_extension("");
                let parts = inner.iter().map(|part| part.to_string_lossy().into_owned());
                let mut module: Vec<String> = parts.collect();
                if module
                    .last()
                    .is_some_and(|last| last == "mod" || last == "lib")
                {
                    module.pop();
                }
                let text = fs::read_to_string(&path).expect("UTF-8");
                found.push(Source { path, module, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Top-level modules that a piece of code names: behind `crate::` or `ringmq::`, or
/// behind as many `super::` as lead to the root.
fn named(code: &str, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let before = &code[..at];
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let start = before.rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
        let at_root = match &before[start..] {
            "crate" | "ringmq" => true,
            "super" => {
                let mut chain = 1;
                let mut rest = &before[..start];
                while let Some(shorter) = rest.strip_suffix("super::") {
                    (rest, chain) = (shorter, chain + 1);
                }
                chain == depth
            }
            _ => false,
        };
        if at_root {
            found.extend(first_segments(&code[at + 2..]));
        }
    }
    found
}

/// The first segments of a path or of a group of paths.
fn first_segments(path: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        let text = text.trim_start();
        text.chars()
            .take_while(|&c| c.is_alphanumeric() || c == '_')
            .collect()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let (mut depth, mut segments, mut start) = (0, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                segments.push(word(&group[start..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                segments.push(word(&group[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    segments
}

/// Statements of a file that name other modules: the line each begins at, its text, and
/// the depth of the module it stands in.
fn statements(source: &Source) -> Vec<(usize, String, usize)> {
    let mut found: Vec<(usize, String, usize)> = Vec::new();
    let mut depth = source.module.len();
    let mut inner = Vec::new();
    let mut continued = false;
    for (number, line) in source.code() {
        let indent = line.len() - line.trim_start().len();
        if continued {
            let last = found.last_mut().expect("it began");
            last.1.push_str(line.trim());
        } else {
            found.push((number, line.to_owned(), depth));
        }
        let words = line.trim();
        let is_use = continued || words.starts_with("use ") || words.starts_with("pub use ");
        continued = is_use && !words.ends_with(';');
        let opens = words.trim_start_matches("pub ").starts_with("mod ") && words.ends_with('{');
        if opens {
            inner.push(indent);
            depth += 1;
        } else if words == "}" && inner.last() == Some(&indent) {
            inner.pop();
            depth -= 1;
        }
    }
    found
}

#[test]
fn arrows_between_modules_point_down() {
    let mut faults = String::new();
    for source in sources() {
        let from = source.top().to_owned();
        if from == "lib" {
            continue;
        }
        let Some(mine) = layer(&from) else {
            let _ = writeln!(faults, "{}: {from} has no layer", source.path.display());
            continue;
        };
        for (line, code, depth) in statements(&source) {
            for to in named(&code, depth) {
                let Some(theirs) = layer(&to) else { continue };
                if to != from && theirs <= mine && !(mine == 0 && theirs == 0) {
                    let _ = writeln!(
                        faults,
                        "{}:{line}: {from} uses {to}, which stands above or beside it",
                        source.path.display()
                    );
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[test]
fn every_top_level_module_has_its_layer() {
    let lib = sources()
        .into_iter()
        .find(|source| source.module.is_empty())
        .expect("lib.rs");
    let modules = lib.code().filter_map(|(_, line)| {
        let name = line
            .trim()
            .trim_start_matches("pub ")
            .strip_prefix("mod ")?;
        name.strip_suffix(';').map(str::to_owned)
    });
    let modules: Vec<String> = modules.collect();
    assert!(modules.len() > 5, "{modules:?}");
    for module in modules {
        assert!(layer(&module).is_some(), "{module} has no layer");
    }
}

#[test]
fn the_reader_of_arrows_sees_every_form() {
    let names = |code: &str, depth| named(code, depth).join(" ");
    assert_eq!(names("use crate::wire::frame::Frame;", 1), "wire");
    assert_eq!(
        names("use crate::{broker, shard::{A, B}, wire};", 1),
        "broker shard wire"
    );
    assert_eq!(
        names("fn f(to: crate::shard::ConnId) -> ringmq::config::Key", 2),
        "shard config"
    );
    assert_eq!(names("use super::shard::Flow;", 1), "shard");
    assert_eq!(names("use super::append;", 2), "");
    assert_eq!(names("use super::super::store::Tail;", 2), "store");
}

#[test]
fn files_stay_readable() {
    for source in all_sources() {
        let lines = source.text.lines().count();
        let path = source.path.display();
        assert!(
            lines <= LINES_MAX,
            "{path}: {lines} lines, the limit is {LINES_MAX}"
        );
    }
}

#[test]
fn nothing_is_left_undone() {
    for source in all_sources() {
        for (line, code) in source.code() {
            for undone in ["todo!", "unimplemented!"] {
                assert!(
                    !code.contains(undone),
                    "{}:{line}: {undone}",
                    source.path.display()
                );
            }
        }
    }
}

#[test]
fn the_runtime_shows_at_the_edges_only() {
    for source in sources() {
        let module: Vec<&str> = source.module.iter().map(String::as_str).collect();
        if RUNTIME_PLACES.iter().any(|place| module.starts_with(place)) {
            continue;
        }
        for (line, code) in source.code() {
            assert!(
                !code.contains("glommio::"),
                "{}:{line}: glommio",
                source.path.display()
            );
        }
    }
}

/// A channel's own futures would not end the wait of a shard's thread.
#[test]
fn what_other_threads_send_is_awaited_through_the_reactor() {
    for source in sources() {
        if ["reactor", "client", "cli"].contains(&source.top()) {
            continue;
        }
        for (line, code) in source.code() {
            for method in [".recv_async(", ".send_async("] {
                assert!(
                    !code.contains(method),
                    "{}:{line}: {method}",
                    source.path.display()
                );
            }
        }
    }
}

#[test]
fn wire_does_no_io() {
    for source in sources().iter().filter(|source| source.top() == "wire") {
        for (line, code) in source.code() {
            for io in ["std::fs", "TcpStream", "SystemTime", "File::"] {
                assert!(!code.contains(io), "{}:{line}: {io}", source.path.display());
            }
        }
    }
}
