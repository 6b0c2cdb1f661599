//! Apache RocketMQ: its jars, from Maven or a folder, and how its programs are started.

use super::process::Process;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What is fetched.
const POM: &str = include_str!("pom.xml");

/// Folder of the fetched jars inside of the cache.
const CACHE_NAME: &str = "apache-rocketmq-5.5.0";

/// Longest time that fetching may take.
const FETCH: Duration = Duration::from_secs(900);

/// What Java 17 must allow, from RocketMQ's own start scripts.
const MODULES: &[&str] = &[
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
];

/// The jars.
#[derive(Clone, Debug)]
pub struct Apache {
    jars: PathBuf,
    /// As the broker's jar says, e.g. `5.5.0`.
    pub version: String,
    /// What runs it, as it says itself.
    pub java: String,
}

impl Apache {
    /// The jars of `folder` (a distribution, or a folder with jars); without one they are fetched
    /// by Maven into the cache, unless they are there.
    ///
    /// # Errors
    /// Text: Java or Maven is missing, the folder has no broker, or Maven failed.
    pub fn find(folder: Option<&Path>) -> Result<Apache, String> {
        let java = java_version()?;
        let (jars, version) = match folder {
            Some(folder) => Apache::in_folder(folder)?,
            None => Apache::fetched()?,
        };
        Ok(Apache {
            jars,
            version,
            java,
        })
    }

    fn in_folder(folder: &Path) -> Result<(PathBuf, String), String> {
        for jars in [folder.to_owned(), folder.join("lib")] {
            if let Some(version) = broker_version(&jars) {
                // RocketMQ starts elsewhere, so that a relative path would be another.
                let jars = fs::canonicalize(&jars)
                    .map_err(|error| format!("{}: {error}", jars.display()))?;
                return Ok((jars, version));
            }
        }
        Err(format!(
            "{}: no rocketmq-broker-*.jar, neither there nor in lib/",
            folder.display()
        ))
    }

    fn fetched() -> Result<(PathBuf, String), String> {
        let cache = cache(|name| std::env::var_os(name))?;
        let jars = cache.join(CACHE_NAME);
        if fs::read_to_string(jars.join("pom.xml")).is_ok_and(|pom| pom == POM) {
            return Apache::in_folder(&jars);
        }
        eprintln!("fetching Apache RocketMQ by Maven into {}", jars.display());
        // Into a folder beside it first: a fetch that is interrupted leaves nothing half done.
        let fresh = cache.join(format!("{CACHE_NAME}.{}", std::process::id()));
        let told = |error: std::io::Error| format!("{}: {error}", fresh.display());
        fs::create_dir_all(&fresh).map_err(told)?;
        fs::write(fresh.join("pom.xml"), POM).map_err(told)?;
        let outcome = run_maven(&fresh).and_then(|()| {
            let _ = fs::remove_dir_all(&jars);
            fs::rename(&fresh, &jars).map_err(told)
        });
        if outcome.is_err() {
            let _ = fs::remove_dir_all(&fresh);
        }
        outcome?;
        Apache::in_folder(&jars)
    }

    /// A command that runs one of RocketMQ's classes, with its logs and settings in `home`.
    pub fn java(&self, home: &Path, options: &[String], class: &str) -> Command {
        let mut command = Command::new("java");
        command
            .env("ROCKETMQ_HOME", home)
            .env_remove("NAMESRV_ADDR")
            .args(options)
            .arg(format!("-Duser.home={}", home.display()))
            .args(MODULES)
            .arg("-cp")
            .arg(self.jars.join("*"))
            .arg(class)
            .current_dir(home);
        command
    }
}

/// Where fetched things are kept: `$RINGMQ_BENCH_CACHE`, else `$RINGMQ_TEST_CACHE`, so that tests
/// and comparisons share them, else `~/.cache/ringmq`.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let named = ["RINGMQ_BENCH_CACHE", "RINGMQ_TEST_CACHE"]
        .into_iter()
        .filter_map(&variable)
        .find(|value| !value.is_empty());
    if let Some(cache) = named {
        return Ok(cache.into());
    }
    let home = variable("HOME").ok_or("neither RINGMQ_BENCH_CACHE nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cache/ringmq"))
}

/// What `java -version` says first.
fn java_version() -> Result<String, String> {
    let output = Command::new("java").arg("-version").output();
    let output = output.ok().filter(|output| output.status.success());
    let Some(output) = output else {
        return Err(
            "java is missing, and Apache RocketMQ needs it: install a JDK, 17 or newer \
             (Debian: openjdk-17-jdk-headless)"
                .to_owned(),
        );
    };
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(text.lines().next().unwrap_or("java").to_owned())
}

/// Version of the broker whose jar is in a folder.
fn broker_version(jars: &Path) -> Option<String> {
    let entries = fs::read_dir(jars).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name
            .strip_prefix("rocketmq-broker-")?
            .strip_suffix(".jar")?;
        Some(version.to_owned())
    })
}

fn run_maven(folder: &Path) -> Result<(), String> {
    let mut command = Command::new("mvn");
    command
        .args(["-q", "-B", "-f"])
        .arg(folder.join("pom.xml"))
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", folder.display()));
    let mut maven = Process::start("Maven", command, &folder.join("maven.log"))
        .map_err(|error| format!("{error}; install Maven (Debian: maven), or give --apache-dir"))?;
    match maven.wait(FETCH) {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("Maven failed, {status}:\n{}", maven.log_end())),
        None => Err(format!(
            "Maven did not end in {} s:\n{}",
            FETCH.as_secs(),
            maven.log_end()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::Folder;
    use super::*;

    #[test]
    fn the_version_is_that_of_the_jar_there_or_in_lib() {
        let folder = Folder::new_in(&std::env::temp_dir(), "test-jars").expect("a folder");
        let empty = Apache::in_folder(folder.path()).expect_err("no jar");
        assert!(empty.contains("rocketmq-broker-*.jar"), "{empty}");
        let lib = folder.path().join("lib");
        fs::create_dir(&lib).expect("lib");
        fs::write(lib.join("rocketmq-broker-5.4.1.jar"), "").expect("a file");
        let (jars, version) = Apache::in_folder(folder.path()).expect("a jar");
        assert_eq!(version, "5.4.1");
        assert!(jars.ends_with("lib"));
    }

    #[test]
    fn the_cache_is_where_the_environment_says() {
        let of = |set: &[(&str, &str)]| {
            cache(|name| {
                let (_, value) = set.iter().find(|(known, _)| *known == name)?;
                Some(OsString::from(value))
            })
        };
        let home = ("HOME", "/home/me");
        let test = ("RINGMQ_TEST_CACHE", "/test");
        let bench = ("RINGMQ_BENCH_CACHE", "/bench");
        assert_eq!(of(&[home, test, bench]), Ok("/bench".into()));
        assert_eq!(of(&[home, test]), Ok("/test".into()));
        assert_eq!(of(&[home]), Ok("/home/me/.cache/ringmq".into()));
        assert_eq!(
            of(&[home, ("RINGMQ_BENCH_CACHE", "")]),
            Ok("/home/me/.cache/ringmq".into())
        );
        assert!(of(&[]).is_err_and(|error| error.contains("RINGMQ_BENCH_CACHE")));
    }

    #[test]
    fn the_cache_is_named_after_what_is_fetched() {
        let version = CACHE_NAME.rsplit('-').next().expect("a version");
        let wanted =
            format!("<artifactId>rocketmq-broker</artifactId><version>{version}</version>");
        assert!(POM.contains(&wanted));
    }
}
