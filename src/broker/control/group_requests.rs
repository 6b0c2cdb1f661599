//! Requests about subscription groups: 200, 201, 207, 225, 352.
//!
//! Source of the rules: `AdminBrokerProcessor`.

use std::cell::RefCell;

use super::Control;
use super::answer::{Answer, body, no_group, page};
use super::groups::{self, GroupError};
use super::view::Effects;
use crate::broker::peers::Peers;
use crate::wire::body::stats::to_body;
use crate::wire::body::subscription_group::{SubscriptionGroupConfig, SubscriptionGroupList};
use crate::wire::command::{Request, Response};

impl From<GroupError> for Response {
    fn from(error: GroupError) -> Response {
        Response::error(error.admin_code(), error.to_string())
    }
}

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
///
/// # Errors
/// The answer, where nothing was changed.
pub fn update(control: &mut Control, request: &Request, now_ms: u64) -> Result<Effects, Response> {
    apply(control, vec![body(request)?], now_ms)
}

/// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all of it, or nothing.
///
/// # Errors
/// The answer, where nothing was changed.
pub fn update_list(
    control: &mut Control,
    request: &Request,
    now_ms: u64,
) -> Result<Effects, Response> {
    let asked: SubscriptionGroupList = body(request)?;
    apply(control, asked.group_config_list, now_ms)
}

fn apply(
    control: &mut Control,
    configs: Vec<SubscriptionGroupConfig>,
    now_ms: u64,
) -> Result<Effects, Response> {
    for config in &configs {
        groups::check_update(config)?;
    }
    let mut effects = Effects::default();
    for config in configs {
        let group = control.groups.update(config, now_ms)?;
        if group.changed {
            effects
                .groups
                .push(control.change(&group.config.group_name));
        }
    }
    Ok(effects)
}

/// DELETE_SUBSCRIPTIONGROUP, with the offsets of the group where `cleanOffset` asks for it.
pub async fn delete(
    control: &RefCell<Control>,
    peers: &Peers,
    request: &Request,
    now_ms: u64,
) -> Answer {
    let group = request.str("groupName")?;
    let clean = request.bool_or("cleanOffset", false)?;
    let effects = remove(&mut control.borrow_mut(), group, now_ms);
    effects.deliver(peers).await;
    if clean {
        peers.drop_group(group).await;
    }
    Ok(Response::ok())
}

fn remove(control: &mut Control, group: &str, now_ms: u64) -> Effects {
    let mut effects = Effects::default();
    if control.groups.remove(group, now_ms) {
        tracing::info!("subscription group {group} deleted");
        effects.groups.push(control.change(group));
    }
    effects
}

/// GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
pub fn all(control: &Control, request: &Request) -> Answer {
    let groups = &control.groups;
    let (first, count) = page(request, "groupSeq", "maxGroupNum", groups.version())?;
    Ok(Response::body(groups.page(first, count)).with("totalGroupNum", groups.len()))
}

/// GET_SUBSCRIPTIONGROUP_CONFIG. Asking does not make the group.
pub fn get(control: &Control, request: &Request) -> Answer {
    let group = request.str("group")?;
    match control.groups.get(group) {
        Some(config) => Ok(Response::body(to_body(&**config))),
        None => no_group(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::control::settings::ControlSettings;
    use serde_json::Value;

    const NOW: u64 = 1_700_000_000_000;

    fn control() -> Control {
        Control::new(&ControlSettings::default())
    }

    #[test]
    fn a_group_is_made_read_and_removed() {
        let mut control = control();
        let request = Request::new(200).with_body(r#"{"groupName":"g","retryMaxTimes":3}"#);
        let effects = update(&mut control, &request, NOW).unwrap();
        assert_eq!(
            effects.groups[0]
                .view
                .as_ref()
                .unwrap()
                .config
                .retry_max_times,
            3
        );
        assert!(
            update(&mut control, &request, NOW)
                .unwrap()
                .groups
                .is_empty()
        );

        let answer = get(&control, &Request::new(352).with("group", "g")).unwrap();
        let group: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(group["retryMaxTimes"], 3);
        let answer = all(&control, &Request::new(201)).unwrap();
        assert_eq!(answer.get("totalGroupNum"), Some("9"));

        assert!(remove(&mut control, "g", NOW).groups[0].view.is_none());
        assert!(remove(&mut control, "g", NOW).groups.is_empty());
        let missing = get(&control, &Request::new(352).with("group", "g")).unwrap_err();
        assert_eq!(missing.code, 26);
        assert!(control.groups.get("g").is_none());
    }

    #[test]
    fn a_list_is_taken_whole_or_not_at_all() {
        let mut control = control();
        let list = r#"{"groupConfigList":[{"groupName":"a"},{"groupName":"b/c"}]}"#;
        let refused = update_list(&mut control, &Request::new(225).with_body(list), NOW);
        assert_eq!(refused.unwrap_err().code, 29);
        assert!(control.groups.get("a").is_none());
        let list = list.replace("/c", "");
        let effects = update_list(&mut control, &Request::new(225).with_body(list), NOW);
        assert_eq!(effects.unwrap().groups.len(), 2);
    }

    #[test]
    fn bodies_that_are_no_group_are_refused() {
        let mut control = control();
        for text in ["", "7", "{", r#"{"groupName":{}}"#] {
            let refused = update(&mut control, &Request::new(200).with_body(text), NOW);
            assert_eq!(refused.unwrap_err().code, 1, "{text}");
        }
    }
}
