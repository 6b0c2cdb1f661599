//! Completions of shells, and manual pages: both come from the definition of the command line.

use super::admin::print;
use clap::Args;
use clap_complete::Shell;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

const INSTALL: &str = "\
Examples:
  ringmq completions bash > /usr/share/bash-completion/completions/ringmq
  ringmq completions zsh > \"${fpath[1]}/_ringmq\"
  ringmq completions fish > ~/.config/fish/completions/ringmq.fish";

/// `ringmq completions`.
#[derive(Debug, Args)]
#[command(after_help = INSTALL)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    /// Writes them to standard output.
    pub fn run(&self) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut super::command(), "ringmq", &mut text);
        finish(print(&String::from_utf8_lossy(&text)))
    }
}

const READ: &str = "\
Examples:
  ringmq man | man -l -
  ringmq man --dir /usr/local/share/man/man1";

/// `ringmq man`.
#[derive(Debug, Args)]
#[command(after_help = READ)]
pub struct ManArgs {
    /// Writes a page for every command into this folder.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl ManArgs {
    /// Writes the page to standard output, or all pages into the folder.
    pub fn run(&self) -> ExitCode {
        let command = super::command();
        match &self.dir {
            None => {
                let mut page = Vec::new();
                // Writing into memory does not fail.
                let _ = clap_mangen::Man::new(command).render(&mut page);
                finish(print(&String::from_utf8_lossy(&page)))
            }
            Some(dir) => {
                let written = std::fs::create_dir_all(dir)
                    .and_then(|()| clap_mangen::generate_to(command, dir));
                match written {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => failed(dir, &error),
                }
            }
        }
    }
}

fn failed(dir: &std::path::Path, error: &io::Error) -> ExitCode {
    eprintln!("ringmq: {}: {error}", dir.display());
    ExitCode::FAILURE
}

fn finish(printed: Result<(), ExitCode>) -> ExitCode {
    printed.err().unwrap_or(ExitCode::SUCCESS)
}
