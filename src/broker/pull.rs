//! PULL_MESSAGE, LITE_PULL_MESSAGE: checks, on the shard that holds the connection
//! (`PullMessageProcessor`).

use std::sync::Arc;

use super::BrokerShard;
use super::control::view::GroupView;
use super::message::{Ask, Filter, Message, PullJob, ReplyTo};
use super::view::TopicEntry;
use crate::shard::Flow;
use crate::wire::body::heartbeat::{MessageModel, SubscriptionData};
use crate::wire::body::topic::perm;
use crate::wire::codes::{request, response};
use crate::wire::frame::Frame;
use crate::wire::header::Header;
use crate::wire::pull_header::{PullHeader, pull_flag};

/// Longest time that a pull is held, whatever its sender asks for, ms: clients
/// give up after 30 s.
const SUSPEND_MS_MAX: i64 = 25_000;

/// Most messages that a pull may ask for.
const MESSAGES_MAX: i32 = 10_000;

impl BrokerShard {
    /// Handles a pull: checks it, and reads or forwards it to its queue.
    pub(super) fn pull(&self, to: ReplyTo, frame: &Frame<'_>, header: &Header<'_>) -> Flow {
        let pull = match PullHeader::parse(header) {
            Ok(pull) => pull,
            Err(error) => {
                self.reply(&to, &error.into());
                return Flow::Continue;
            }
        };
        if self.view.borrow().group(pull.group).is_none() {
            if self.deferred.get() >= super::DEFERRED_MAX {
                return Flow::Later;
            }
            self.defer(to, frame, Ask::EnsureGroup(pull.group.to_owned()));
            return Flow::Continue;
        }
        let lite = header.fixed.code == request::LITE_PULL_MESSAGE;
        match self.pull_job(to, &pull, lite) {
            Ok((job, owner)) if owner == self.id() => match self.pull_owned(job) {
                Ok(()) => Flow::Continue,
                Err(_) => Flow::Later,
            },
            Ok((mut job, owner)) => {
                if !self.may_forward() {
                    return Flow::Later;
                }
                let bytes = self
                    .settings
                    .borrow()
                    .max_transfer_bytes_on_message_in_memory;
                self.await_answer(&mut job.reply_to, bytes);
                self.forward(owner, Message::Pull(Box::new(job)));
                Flow::Continue
            }
            Err((code, remark)) => {
                self.refuse(&to, code, remark);
                Flow::Continue
            }
        }
    }

    fn pull_job(
        &self,
        to: ReplyTo,
        pull: &PullHeader<'_>,
        lite: bool,
    ) -> Result<(PullJob, crate::shard::ShardId), (i32, String)> {
        let settings = self.settings.borrow();
        let view = self.view.borrow();
        let refused = |code: i32, remark: String| Err((code, remark));
        if !perm::is_readable(settings.broker_permission as i32) {
            return refused(
                response::NO_PERMISSION,
                "the broker is not readable".to_owned(),
            );
        }
        if lite && !settings.lite_pull_message_enable {
            return refused(
                response::NO_PERMISSION,
                "lite pull is switched off (litePullMessageEnable)".to_owned(),
            );
        }
        let Some((group_name, group)) = view.group(pull.group) else {
            return refused(
                response::SUBSCRIPTION_GROUP_NOT_EXIST,
                format!("subscription group {} does not exist", pull.group),
            );
        };
        if !group.config.consume_enable {
            return refused(
                response::NO_PERMISSION,
                format!("group {} may not consume", pull.group),
            );
        }
        let Some(topic) = view.topic(pull.topic) else {
            return refused(
                response::TOPIC_NOT_EXIST,
                format!("topic {} does not exist", pull.topic),
            );
        };
        if !perm::is_readable(topic.config.perm) {
            return refused(
                response::NO_PERMISSION,
                format!("topic {} is not readable", pull.topic),
            );
        }
        let queues = topic.config.read_queue_nums;
        let owner = topic
            .owner(pull.queue_id)
            .filter(|_| pull.queue_id < queues);
        let Some(owner) = owner else {
            return refused(
                response::INVALID_PARAMETER,
                format!(
                    "queue {} of topic {}, which has {queues} queues to read",
                    pull.queue_id, pull.topic
                ),
            );
        };
        let (filter, broadcast) = filter_of(pull, group, topic)?;
        let suspend = if pull.sys_flag & pull_flag::SUSPEND == 0 {
            0
        } else if settings.long_polling_enable {
            pull.suspend_timeout_ms.clamp(0, SUSPEND_MS_MAX) as u64
        } else {
            settings.short_polling_time_ms
        };
        let commits = pull.sys_flag & pull_flag::COMMIT_OFFSET != 0 && pull.commit_offset >= 0;
        let job = PullJob {
            reply_to: to,
            group: group_name.clone(),
            topic: topic.name.clone(),
            queue_id: pull.queue_id,
            offset: pull.queue_offset,
            max_messages: pull.max_messages.clamp(1, MESSAGES_MAX) as usize,
            commit: commits.then_some(pull.commit_offset),
            suspend_ms: suspend,
            filter,
            topic_sys_flag: topic.config.topic_sys_flag,
            group_sys_flag: group.config.group_sys_flag,
            suggest_broker: group.config.broker_id,
            guard_offset: !broadcast,
            parked: false,
        };
        Ok((job, owner))
    }
}

/// What a pull filters by: what it says itself, or what its group subscribed.
/// Also whether the group broadcasts.
fn filter_of(
    pull: &PullHeader<'_>,
    group: &Arc<GroupView>,
    topic: &TopicEntry,
) -> Result<(Filter, bool), (i32, String)> {
    let live = group.live.as_ref();
    let broadcast = live.is_some_and(|live| live.message_model == MessageModel::Broadcasting);
    if pull.sys_flag & pull_flag::SUBSCRIPTION != 0 {
        check_type(pull.expression_type)?;
        if matches!(pull.subscription, "" | "*") {
            return Ok((Filter::All, broadcast));
        }
        if pull.subscription.split("||").all(str::is_empty) {
            return Err((
                response::SUBSCRIPTION_PARSE_FAILED,
                format!("{:?} names no tag", pull.subscription),
            ));
        }
        let data = SubscriptionData::new(
            pull.topic,
            pull.subscription,
            pull.expression_type,
            pull.sub_version,
        );
        return Ok((filter_by(&data), broadcast));
    }
    let not_exist = |remark: String| (response::SUBSCRIPTION_NOT_EXIST, remark);
    let Some(live) = live else {
        return Err(not_exist(format!(
            "group {} has no live consumer",
            pull.group
        )));
    };
    if broadcast && !group.config.consume_broadcast_enable {
        return Err((
            response::NO_PERMISSION,
            format!("group {} may not consume by broadcasting", pull.group),
        ));
    }
    if group
        .forbidden
        .get(pull.topic)
        .is_some_and(|bits| bits & READ_FORBIDDEN != 0)
    {
        return Err((
            response::NO_PERMISSION,
            format!("group {} may not read topic {}", pull.group, topic.name),
        ));
    }
    let Some(data) = live.subscriptions.get(pull.topic) else {
        return Err(not_exist(format!(
            "group {} has not subscribed to topic {}",
            pull.group, pull.topic
        )));
    };
    // A client that raised the version of its subscription tells so with its next
    // heartbeat, up to 30 s later. RocketMQ answers code 25 until then. What it wants
    // is not known, so it is sent everything, and filters by itself: by the older
    // filter it would be moved on past messages that it has just asked for.
    if data.sub_version < pull.sub_version {
        return Ok((Filter::All, broadcast));
    }
    check_type(&data.expression_type)?;
    Ok((filter_by(data), broadcast))
}

/// Bit of a group's forbidden table: reading (`PermName.INDEX_PERM_READ`).
const READ_FORBIDDEN: i32 = 1 << 2;

fn check_type(expression_type: &str) -> Result<(), (i32, String)> {
    if matches!(expression_type, "" | "TAG") {
        return Ok(());
    }
    Err((
        response::SYSTEM_ERROR,
        format!("the broker does not filter by {expression_type}, only by TAG"),
    ))
}

fn filter_by(data: &SubscriptionData) -> Filter {
    if data.class_filter_mode || data.sub_string == "*" || data.code_set.is_empty() {
        return Filter::All;
    }
    Filter::Tags(data.code_set.iter().copied().collect())
}
