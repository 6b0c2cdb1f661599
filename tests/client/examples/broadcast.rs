use ringmq::client::{
    ClientSettings, ConsumeFromWhere, MessageModel, PushConsumer, PushConsumerSettings, Result,
};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

pub fn broadcast(name_servers: &str, offsets: &Path) -> Result<()> {
    let (shown, boards) = mpsc::channel();
    let start = |board: &'static str| {
        let client = ClientSettings {
            // By its name a member finds its file of offsets after a restart.
            instance_name: Some(board.to_owned()),
            offset_store_dir: Some(offsets.to_owned()),
            ..ClientSettings::with_name_servers(name_servers)
        };
        let mut settings = PushConsumerSettings::new("boards");
        settings.setup.message_model = MessageModel::Broadcasting;
        settings.setup.consume_from_where = ConsumeFromWhere::FirstOffset;
        let shown = shown.clone();
        PushConsumer::start(&client, settings, [("departures", "*")], move |_batch| {
            let _ = shown.send(board);
        })
    };
    let members = [start("hall")?, start("platform")?];
    for _ in &members {
        let board = boards.recv_timeout(Duration::from_secs(60));
        println!("shown in the {}", board.expect("a message within a minute"));
    }
    members.iter().try_for_each(PushConsumer::shutdown)
}
