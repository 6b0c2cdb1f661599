//! Requests that go to the control shard, and what its clients' comings and
//! goings cause.

use std::rc::Rc;
use std::sync::Arc;

use super::control::handle::{handle, is_control};
use super::control::settings::ControlSettings;
use super::control::{ConnInfo, view::Effects};
use super::message::Message;
use super::{BrokerShard, now_ms};
use crate::config::Settings;
use crate::shard::{ConnId, spawn};
use crate::wire::codes::{request, response};
use crate::wire::command::{Request, Response};

impl BrokerShard {
    /// Answers a request on the control shard; `None`: there is no answer.
    pub(super) async fn handle_control(
        self: &Rc<Self>,
        conn: ConnInfo,
        request: Request,
    ) -> Option<Response> {
        let Some(control) = &self.control else {
            return Some(Response::not_supported(request.fixed.code));
        };
        let code = request.fixed.code;
        let answer = match code {
            request::CONSUMER_SEND_MSG_BACK => Some(self.send_back(&request).await),
            request::GET_BROKER_CONFIG => Some(self.broker_config()),
            request::UPDATE_BROKER_CONFIG => Some(self.update_broker_config(&request).await),
            request::GET_ALL_DELAY_OFFSET => Some(Response::body(self.delay_offsets())),
            code if is_control(code) => {
                let settings = control.settings.borrow().clone();
                let peers = self.peers();
                handle(&control.state, &peers, &settings, conn, request, now_ms()).await
            }
            code => Some(Response::not_supported(code)),
        };
        self.save_tables().await;
        answer
    }

    /// A connection is gone: its client is no member of anything any more.
    pub(super) fn client_closed(&self, conn: ConnId) {
        if let Some(control) = &self.control {
            let settings = control.settings.borrow();
            let effects = control
                .state
                .borrow_mut()
                .connection_closed(conn, &settings);
            self.deliver_effects(effects);
        }
    }

    /// Clients that have been silent for too long are no members any more.
    pub(super) fn expire_clients(&self) {
        if let Some(control) = &self.control {
            let settings = control.settings.borrow();
            let effects = control.state.borrow_mut().expire(&settings, now_ms());
            self.deliver_effects(effects);
        }
    }

    fn deliver_effects(&self, effects: Effects) {
        let me = self.rc();
        spawn("what a change leads to", async move {
            effects.deliver(&me.peers()).await
        });
    }

    fn broker_config(&self) -> Response {
        let text = self.settings.borrow().properties_text();
        let version = self.control.as_ref().and_then(|control| {
            serde_json::to_string(&control.state.borrow().topics.version()).ok()
        });
        Response::body(text).with("version", version.unwrap_or_default())
    }

    /// UPDATE_BROKER_CONFIG: all keys or none, and only those that may change at run
    /// time. No key reaches a path, a port or a command.
    async fn update_broker_config(&self, request: &Request) -> Response {
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Response::error(response::SYSTEM_ERROR, "the body is not UTF-8");
        };
        let mut settings = Settings::clone(&self.settings.borrow());
        let changed = match settings.update(text) {
            Ok(changed) => changed,
            Err(error) => return Response::error(response::NO_PERMISSION, error.to_string()),
        };
        tracing::info!(keys = changed.join(" "), "settings changed at run time");
        let settings = Arc::new(settings);
        self.broadcast(|| Message::Settings(settings.clone()));
        let template = self.control.as_ref().and_then(|control| {
            let mut current = control.settings.borrow_mut();
            apply(&mut current, &settings);
            let mut state = control.state.borrow_mut();
            state.locks.live_ms = settings.lock_max_live_time_ms;
            state.topics.apply_auto_create(&current, now_ms())
        });
        if let Some(template) = template {
            self.publish_topics(&[template]).await;
        }
        Response::ok()
    }
}

/// Takes over the settings that may change at run time.
fn apply(control: &mut ControlSettings, settings: &Settings) {
    control.auto_create_topic = settings.auto_create_topic_enable;
    control.auto_create_group = settings.auto_create_subscription_group;
    control.default_topic_queue_nums = settings.default_topic_queue_nums as i32;
    control.property_filter = settings.enable_property_filter;
    control.notify_consumers = settings.notify_consumer_ids_changed_enable;
    control.client_expiry_ms = settings.channel_expired_timeout_ms;
}

/// The settings of the control shard, from those of the broker.
pub(super) fn control_settings(settings: &Settings, address: &str) -> ControlSettings {
    let mut control = ControlSettings {
        broker_name: settings.broker_name.clone(),
        cluster_name: settings.broker_cluster_name.clone(),
        broker_addr: address.to_owned(),
        cluster_topic: settings.cluster_topic_enable,
        broker_topic: settings.broker_topic_enable,
        trace_topic: settings.trace_topic_enable,
        timer_wheel: false,
        delay_levels: (settings.message_delay_level.len() as i32).max(18),
        boot_ms: now_ms(),
        ..ControlSettings::default()
    };
    apply(&mut control, settings);
    control
}
