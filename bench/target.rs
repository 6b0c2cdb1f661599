//! What is measured: a broker, or the brokers that a nameserver knows.

/// Where the load goes. One of `broker` and `nameserver` must be there.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// `host:port` of a broker.
    pub broker: Option<String>,
    /// `host:port` of a nameserver: the load goes to all brokers of the topic's route.
    pub nameserver: Option<String>,
    /// What it is called in the result; `None`: what it says of itself.
    pub name: Option<String>,
    /// Process of the broker; `None`: the one that listens at its port, if that is on this machine.
    pub server_pid: Option<u32>,
}

impl Target {
    /// A broker by its address.
    pub fn broker(address: impl ToString) -> Target {
        Target {
            broker: Some(address.to_string()),
            ..Target::default()
        }
    }
}
