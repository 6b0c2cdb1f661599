//! What this client is called.

use super::io::Now;
use crate::client::settings::ClientSettings;

/// `ip@instance` or `ip@instance@unit` (`ClientConfig.buildMQClientId`); an instance without
/// a name is called by process and time, as Java does.
pub(super) fn client_id(settings: &ClientSettings, now: Now) -> String {
    let ip = match settings.client_ip {
        Some(ip) => ip.to_string(),
        None => "127.0.0.1".to_owned(),
    };
    let instance = match &settings.instance_name {
        Some(name) => name.clone(),
        None => format!(
            "{}#{}{:06}",
            std::process::id(),
            now.wall,
            now.at % 1_000_000
        ),
    };
    match &settings.unit_name {
        Some(unit) => format!("{ip}@{instance}@{unit}"),
        None => format!("{ip}@{instance}"),
    }
}
