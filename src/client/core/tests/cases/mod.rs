//! Single conditions, each with the right behaviour. Those that were reported by users of
//! RocketMQ name the report.

mod consumers;
mod life;
mod routes;
mod sends;

use super::world::World;
use crate::client::core::io::Answer;
use crate::client::message::{Message, SendResult};
use crate::client::settings::ProducerSettings;

pub fn world(brokers: usize) -> World {
    World::with_brokers(1, brokers, ProducerSettings::new("g"))
}

pub fn message() -> Message {
    Message::new("t", "body")
}

pub fn sent(world: &mut World, message: Message) -> SendResult {
    match world.sent(message).unwrap() {
        Answer::Sent(result) => result,
        other => panic!("{other:?}"),
    }
}

pub fn asked(world: &World, address: &str, code: i32) -> usize {
    let asked = world.servers[address].asked.iter();
    asked.filter(|&&seen| seen == code).count()
}
