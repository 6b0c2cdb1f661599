//! Workloads: what is done to a broker, and what is made of it.

mod consume;
mod e2e;
mod mixed;
mod phase;
mod produce;
mod restart;
mod session;
mod spec;

use super::load::payload::SizeDistribution;
use super::report::progress::Progress;
use super::result;
use super::target::Target;
use session::Session;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Messages are sent.
    Produce,
    /// Everything there is gets read, from the start.
    CatchUp,
    /// What others send at the same time is read.
    Tail,
    /// Sent at a rate, and received by consumers that wait for it.
    EndToEnd,
    /// The same with several groups that read everything each.
    FanOut,
    /// Sent alone first, then beside a consumer that reads from the start.
    Mixed,
    /// Sent while the broker is stopped and started again.
    Restart,
}

impl Workload {
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Produce => "produce",
            Workload::CatchUp => "consume",
            Workload::Tail => "tail",
            Workload::EndToEnd => "e2e",
            Workload::FanOut => "fanout",
            Workload::Mixed => "mixed",
            Workload::Restart => "restart",
        }
    }
}

/// When a producer sends its next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One request at a time on each connection.
    Sync,
    /// Up to [`Spec::in_flight`] requests at a time on each connection.
    #[default]
    Pipelined,
    /// Without answers.
    OneWay,
}

/// A workload with all its options. Each workload uses those that concern it.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What is done.
    pub workload: Workload,
    /// Name in the result; empty: that of the workload.
    pub cell: String,
    /// Topic to use, made if it is not there; `None`: a new one, deleted at the end.
    pub topic: Option<String>,
    /// Topics; above 1 their names end in `-0`, `-1` and so on.
    pub topics: u32,
    /// Queues of each topic, on each broker.
    pub queues: u32,
    /// Connections that send.
    pub connections: usize,
    /// Requests of each connection that wait for their answers, at most.
    pub in_flight: usize,
    /// When the next request is sent.
    pub mode: Mode,
    /// Messages of one request; above 1 they are sent as a batch.
    pub batch: usize,
    /// Sizes of the bodies.
    pub size: SizeDistribution,
    /// Share of the bodies that compresses to nothing, 0 to 1.
    pub compressible: f64,
    /// Whether messages have keys (every message has its unique key).
    pub keys: bool,
    /// Number of different tags; 0: none.
    pub tags: u32,
    /// Messages per second (open loop); `None`: as fast as answers come (closed loop).
    pub rate: Option<f64>,
    /// Length of the measured part in seconds. Of [`Workload::CatchUp`]: the longest.
    pub seconds: f64,
    /// Length of what goes before it and is not counted, in seconds.
    pub warm_up: f64,
    /// Threads that send, and as many again that read.
    pub threads: usize,
    /// Messages to put into the topic before it is read; `None`: a number that suits the
    /// workload, if the topic is empty.
    pub fill: Option<u64>,
    /// Messages that a pull asks for.
    pub max: u32,
    /// Connections that read.
    pub consumers: usize,
    /// Consumer groups; each reads everything.
    pub groups: u32,
    /// Of [`Workload::Restart`]: the shell command that stops the broker and starts it again.
    pub restart_command: Option<String>,
    /// Whether every acknowledged message is looked for and looked at.
    pub verify: bool,
    /// Longest wait for an answer, in seconds. Not the time that a pull may wait for messages.
    pub timeout: f64,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            workload: Workload::Produce,
            cell: String::new(),
            topic: None,
            topics: 1,
            queues: 8,
            connections: 4,
            in_flight: 16,
            mode: Mode::Pipelined,
            batch: 1,
            size: SizeDistribution::Fixed(1024),
            compressible: 0.0,
            keys: false,
            tags: 0,
            rate: None,
            seconds: 10.0,
            warm_up: 2.0,
            threads: 1,
            fill: None,
            max: 32,
            consumers: 4,
            groups: 1,
            restart_command: None,
            verify: true,
            timeout: 10.0,
        }
    }
}

/// Runs a workload to its end. Never fails: what went wrong is in [`result::Run::error`].
pub fn run_workload(spec: &Spec, target: &Target, progress: &Progress) -> result::Run {
    let mut run = result::Run {
        cell: match spec.cell.as_str() {
            "" => spec.workload.name().to_owned(),
            cell => cell.to_owned(),
        },
        workload: spec.workload.name().to_owned(),
        broker: target.name.clone().unwrap_or_default(),
        options: spec.options(),
        ..result::Run::default()
    };
    progress.part("preparing");
    let ended = spec.check().and_then(|()| {
        let session = Session::open(spec, target, progress)?;
        run.broker.clone_from(&session.product);
        let ended = match spec.workload {
            Workload::Produce => produce::run(&session, &mut run),
            Workload::CatchUp => consume::catch_up(&session, &mut run),
            Workload::Tail => consume::tail(&session, &mut run),
            Workload::EndToEnd | Workload::FanOut => e2e::run(&session, &mut run),
            Workload::Mixed => mixed::run(&session, &mut run),
            Workload::Restart => restart::run(&session, &mut run),
        };
        session.close();
        ended
    });
    progress.done();
    run.error = ended.err();
    run
}
