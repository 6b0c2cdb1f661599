//! `ringmq admin`: what operators ask of brokers and nameservers, under RocketMQ's names.

mod brokers;
mod check_send;
mod cluster;
mod context;
mod examples;
mod export;
mod find_messages;
mod group_members;
mod group_progress;
mod groups;
mod message_view;
mod messages;
mod nameservers;
mod offsets;
mod options;
mod stats;
mod topic_changes;
mod topics;
mod trace;

#[cfg(test)]
mod tests;

use super::show::{Document, Failure, Format, Outcome, Stop, Style, exit};
use clap::{Arg, Args, Command, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

pub use brokers::Figures;
pub use context::Context;
pub use group_progress::{all_groups, total_diff};
#[cfg(test)]
pub use message_view::base64;
pub use message_view::message_json;
pub use messages::fits;
pub use options::{Common, Target};

const EXAMPLES: &str = "\
Examples:
  ringmq admin topicList -n 10.0.0.1:9876
  ringmq admin updateTopic -c DefaultCluster -t Orders -r 8 -w 8
  ringmq admin consumerProgress -g billing --output json | jq .totalDiff
  ringmq admin resetOffsetByTime -g billing -t Orders -s -2h --yes
  export NAMESRV_ADDR='10.0.0.1:9876;10.0.0.2:9876'

Exit codes: 0 done; 1 failed, nobody could be asked or the answer makes no sense; 2 the command line
is wrong or a confirmation is missing; 3 what was asked for is not there; 4 refused, or not answered
or done by all brokers.";

/// `ringmq admin`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct AdminArgs {
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: AdminCommand,
}

macro_rules! commands {
    ($($(#[$about:meta])* $name:ident($type:ty),)*) => {
        /// What to do.
        #[derive(Debug, Subcommand)]
        #[command(rename_all = "camelCase")]
        pub enum AdminCommand {
            $($(#[$about])* $name($type),)*
        }

        impl AdminCommand {
            fn run(&self, context: &mut Context) -> Outcome {
                match self {
                    $(AdminCommand::$name(command) => command.run(context),)*
                }
            }
        }
    };
}

commands! {
    /// Lists all topics; with -c also their clusters and who reads them.
    TopicList(topics::TopicList),
    /// Shows which brokers have a topic, with how many queues.
    TopicRoute(topics::TopicRoute),
    /// Shows a topic's queues: offsets, messages, and when the last came.
    TopicStatus(topics::TopicStatus),
    /// Lists the clusters that have a topic.
    TopicClusterList(topics::TopicClusterList),
    /// Makes a topic, or changes it.
    UpdateTopic(topic_changes::UpdateTopic),
    /// Makes or changes topics from a file of JSON.
    UpdateTopicList(topic_changes::UpdateTopicList),
    /// Changes who may use a topic: 6 read and write, 4 read, 2 write.
    UpdateTopicPerm(topic_changes::UpdateTopicPerm),
    /// Deletes a topic and its messages.
    DeleteTopic(topic_changes::DeleteTopic),
    /// Shows, sets or deletes the order configuration of a topic.
    UpdateOrderConf(topic_changes::UpdateOrderConf),
    /// Shows how a topic's queues would be given to clients.
    #[command(name = "allocateMQ")]
    AllocateMq(topics::AllocateMq),
    /// Shows rates and accumulation of all topics and their groups.
    StatsAll(stats::StatsAll),
    /// Lists clusters and brokers with their load.
    ClusterList(cluster::ClusterList),
    /// Measures how long a send takes in each cluster.
    #[command(name = "clusterRT")]
    ClusterRt(check_send::ClusterRt),
    /// Shows everything that brokers say of themselves.
    BrokerStatus(brokers::BrokerStatus),
    /// Shows brokers' settings.
    GetBrokerConfig(brokers::GetBrokerConfig),
    /// Changes a setting of running brokers.
    UpdateBrokerConfig(brokers::UpdateBrokerConfig),
    /// Shows how far all groups of a broker are.
    BrokerConsumeStats(stats::BrokerConsumeStats),
    /// Sends to a broker and shows how long each message took.
    SendMsgStatus(check_send::SendMsgStatus),
    /// Deletes queue files of messages that are gone.
    #[command(name = "cleanExpiredCQ")]
    CleanExpiredCq(brokers::CleanExpiredCq),
    /// Deletes queue files of topics that are gone.
    CleanUnusedTopic(brokers::CleanUnusedTopic),
    /// Deletes old segments of the log now.
    DeleteExpiredCommitLog(brokers::DeleteExpiredCommitLog),
    /// Shows how replication stands.
    HaStatus(brokers::HaStatus),
    /// Makes a consumer group, or changes it.
    UpdateSubGroup(groups::UpdateSubGroup),
    /// Makes or changes groups from a file of JSON.
    UpdateSubGroupList(groups::UpdateSubGroupList),
    /// Deletes a consumer group.
    DeleteSubGroup(groups::DeleteSubGroup),
    /// Shows a group's settings on every broker.
    GetConsumerConfig(groups::GetConsumerConfig),
    /// Sets whether members of a group are given messages by PULL or by POP.
    SetConsumeMode(groups::SetConsumeMode),
    /// Shows how far groups are behind; with -g one group, queue by queue.
    ConsumerProgress(group_progress::ConsumerProgress),
    /// Lists the members of a group and what they subscribe to.
    ConsumerConnection(group_members::ConsumerConnection),
    /// Asks the members of a group how they are.
    ConsumerStatus(group_members::ConsumerStatus),
    /// The same under another name.
    Consumer(group_members::ConsumerStatus),
    /// Lists the producers of a group that are connected.
    ProducerConnection(group_members::ProducerConnection),
    /// Lists all producers that are connected to brokers.
    Producer(group_members::Producer),
    /// Lets a group go on at what was stored at a time.
    ResetOffsetByTime(offsets::ResetOffsetByTime),
    /// The same, set queue by queue, for a group without members.
    ResetOffsetByTimeOld(offsets::ResetOffsetByTimeOld),
    /// Lets a group go on at the end of a topic.
    SkipAccumulatedMessage(offsets::SkipAccumulatedMessage),
    /// Gives a group the offsets of another.
    CloneGroupOffset(offsets::CloneGroupOffset),
    /// Shows the offsets that members of a group hold in memory.
    GetConsumerStatus(offsets::GetConsumerStatus),
    /// Finds a message by its offset message id, or by the id of its sender.
    QueryMsgById(find_messages::QueryMsgById),
    /// Finds messages by key.
    QueryMsgByKey(find_messages::QueryMsgByKey),
    /// Finds a message by the id that its sender gave it.
    QueryMsgByUniqueKey(find_messages::QueryMsgByUniqueKey),
    /// Shows the message at a place in a queue.
    QueryMsgByOffset(find_messages::QueryMsgByOffset),
    /// Shows the trace of a message.
    QueryMsgTraceById(trace::QueryMsgTraceById),
    /// Shows messages of a topic, stored within a time.
    PrintMsg(messages::PrintMsg),
    /// Shows messages of one queue, stored within a time, or counts them by tag.
    PrintMsgByQueue(messages::PrintMsgByQueue),
    /// Shows messages of a topic, a broker or a queue.
    ConsumeMessage(messages::ConsumeMessage),
    /// Sends a message.
    SendMessage(messages::SendMessage),
    /// Measures how long sends to a topic take.
    #[command(name = "checkMsgSendRT")]
    CheckMsgSendRt(check_send::CheckMsgSendRt),
    /// Shows what the id that a sender gave says of it.
    #[command(name = "DecodeMessageId", alias = "decodeMessageId")]
    DecodeMessageId(messages::DecodeMessageId),
    /// Shows entries of a ConsumeQueue.
    QueryCq(messages::QueryCq),
    /// Shows nameservers' settings.
    GetNamesrvConfig(nameservers::GetNamesrvConfig),
    /// Changes a setting of all nameservers.
    UpdateNamesrvConfig(nameservers::UpdateNamesrvConfig),
    /// Sets a key at all nameservers.
    UpdateKvConfig(nameservers::UpdateKvConfig),
    /// Takes a key away at all nameservers.
    DeleteKvConfig(nameservers::DeleteKvConfig),
    /// Takes all topics of a broker out of writing, at all nameservers.
    WipeWritePerm(nameservers::WipeWritePerm),
    /// Gives it back.
    AddWritePerm(nameservers::AddWritePerm),
    /// Writes the settings of a cluster's brokers and nameservers to a file.
    ExportConfigs(export::ExportConfigs),
    /// Writes topics and groups of a cluster or a broker to a file.
    ExportMetadata(export::ExportMetadata),
    /// Writes what a cluster's brokers say of themselves to a file.
    ExportMetrics(export::ExportMetrics),
}

impl AdminCommand {
    /// Time between two answers of a command that goes on until it is stopped.
    fn interval(&self) -> Option<Duration> {
        match self {
            AdminCommand::ClusterList(command) => command.repeat.interval(),
            AdminCommand::ClusterRt(command) => command.repeat.interval(),
            AdminCommand::HaStatus(command) => command.repeat.interval(),
            _ => None,
        }
    }
}

impl AdminArgs {
    /// Does it, prints the answer and says with which code to end.
    pub fn run(&self) -> ExitCode {
        let done = self.common.connect().and_then(|mut context| {
            let stop = self.command.interval().map(|_| Stop::on_signals());
            let stop = stop.transpose()?;
            let mut has_answered = false;
            loop {
                let outcome = self.command.run(&mut context);
                let code = match outcome.map_err(|failure| context.explain(failure)) {
                    Ok(document) => {
                        has_answered = true;
                        if let Err(code) = write(&document, self.common.output) {
                            return Ok(code);
                        }
                        code_of(&document)
                    }
                    // What was answered before may be again.
                    Err(failure) if has_answered => refuse(&failure),
                    Err(failure) => return Err(failure),
                };
                let goes_on = match (&stop, self.command.interval()) {
                    (Some(stop), Some(interval)) => stop.sleep(interval),
                    _ => false,
                };
                if !goes_on {
                    return Ok(code);
                }
            }
        });
        done.unwrap_or_else(|failure| refuse(&failure))
    }
}

/// Prints what a command came to.
pub fn finish(outcome: Outcome, format: Format) -> ExitCode {
    match outcome {
        Ok(document) => match write(&document, format) {
            Ok(()) => code_of(&document),
            Err(code) => code,
        },
        Err(failure) => refuse(&failure),
    }
}

/// Prints an answer, and what is wrong with it.
fn write(document: &Document, format: Format) -> Result<(), ExitCode> {
    print(&document.render(format, Style::of_stdout()))?;
    for fault in &document.faults {
        eprintln!("ringmq: {}", super::show::clean(fault));
    }
    Ok(())
}

fn code_of(document: &Document) -> ExitCode {
    match document.faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(exit::REFUSED),
    }
}

/// Says on standard error why a command has failed.
pub fn refuse(failure: &Failure) -> ExitCode {
    eprintln!("ringmq: {failure}");
    ExitCode::from(failure.code)
}

/// Writes to standard output. A reader that has gone, as `head` does, is no failure.
pub fn print(text: &str) -> Result<(), ExitCode> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("ringmq: standard output: {error}");
            Err(ExitCode::from(exit::FAILED))
        }
    }
}

/// Lets every command and option be written as RocketMQ writes it and with dashes alike, and gives
/// each command its example.
pub fn with_aliases(command: Command) -> Command {
    command
        .mut_args(|arg: Arg| match arg.get_long() {
            Some(long) if long.contains('-') => {
                let alias = camel_case(long);
                arg.alias(alias)
            }
            _ => arg,
        })
        .mut_subcommands(|sub| {
            let name = sub.get_name().to_owned();
            let alias = kebab_case(&name);
            let sub = with_aliases(sub);
            let sub = match examples::help_of(&name) {
                Some(example) => sub.after_help(example),
                None => sub,
            };
            match alias == name {
                true => sub,
                false => sub.visible_alias(alias),
            }
        })
}

fn camel_case(kebab: &str) -> String {
    let mut words = kebab.split('-');
    let mut out = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut chars = word.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        out.push_str(chars.as_str());
    }
    out
}

fn kebab_case(camel: &str) -> String {
    let mut out = String::new();
    let mut after_lower = false;
    for c in camel.chars() {
        if c.is_ascii_uppercase() && after_lower {
            out.push('-');
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(c.to_ascii_lowercase());
    }
    out
}
