//! An example of every command, for its help and its manual page.

/// Names with a line each, in the order of the commands.
const EXAMPLES: &[(&str, &str)] = &[
    ("topicList", "-c"),
    ("topicRoute", "-t Orders"),
    ("topicStatus", "-t Orders"),
    ("topicClusterList", "-t Orders"),
    ("updateTopic", "-t Orders -c DefaultCluster -r 16 -w 16"),
    ("updateTopicList", "-c DefaultCluster -f topics.json"),
    ("updateTopicPerm", "-t Orders -p 4"),
    ("deleteTopic", "-t Orders -c DefaultCluster"),
    (
        "updateOrderConf",
        "-t Orders -m put -v broker-a:4;broker-b:4",
    ),
    ("allocateMQ", "-t Orders -i client-1,client-2"),
    ("statsAll", "-t Orders"),
    ("clusterList", "-m -i 10"),
    ("clusterRT", "-a 50 -s 1024"),
    ("brokerStatus", "-b broker-a"),
    ("getBrokerConfig", "-b 10.0.0.5:10911"),
    (
        "updateBrokerConfig",
        "-c DefaultCluster -k fileReservedTime -v 48",
    ),
    ("brokerConsumeStats", "-b broker-a -l 1000"),
    ("sendMsgStatus", "-b broker-a -c 20"),
    ("cleanExpiredCQ", "-c DefaultCluster"),
    ("cleanUnusedTopic", "-b broker-a"),
    ("deleteExpiredCommitLog", "-b broker-a"),
    ("haStatus", "-b broker-a -i 3"),
    ("updateSubGroup", "-g billing -c DefaultCluster -r 5"),
    ("updateSubGroupList", "-c DefaultCluster -f groups.json"),
    ("deleteSubGroup", "-g billing -c DefaultCluster -r true"),
    ("getConsumerConfig", "-g billing"),
    ("setConsumeMode", "-t Orders -g billing -m POP -q 2"),
    ("consumerProgress", "-g billing -s"),
    ("consumerConnection", "-g billing"),
    ("consumerStatus", "-g billing"),
    ("consumer", "-g billing"),
    ("producerConnection", "-g shop -t Orders"),
    ("producer", "-b broker-a"),
    ("resetOffsetByTime", "-g billing -t Orders -s -2h"),
    (
        "resetOffsetByTimeOld",
        "-g billing -t Orders -s 2026-11-30#06:00:00:000",
    ),
    ("skipAccumulatedMessage", "-g billing -t Orders"),
    ("cloneGroupOffset", "-s billing -d audit -t Orders"),
    ("getConsumerStatus", "-g billing -t Orders"),
    ("queryMsgById", "-i 0A00000500002A9F0000000000000064"),
    ("queryMsgByKey", "-t Orders -k order-4711 -b -1h"),
    (
        "queryMsgByUniqueKey",
        "-t Orders -i 7F0000010A3C18B4AAC2059D8A1B0000",
    ),
    ("queryMsgByOffset", "-t Orders -b broker-a -i 0 -o 42"),
    ("queryMsgTraceById", "-i 7F0000010A3C18B4AAC2059D8A1B0000"),
    ("printMsg", "-t Orders -s new||paid -b -10m"),
    ("printMsgByQueue", "-t Orders -a broker-a -i 0 -f true"),
    ("consumeMessage", "-t Orders -c 10"),
    ("sendMessage", "-t Orders -p hello -k order-4711 -c new"),
    ("checkMsgSendRT", "-t Orders -a 50 -s 1024"),
    ("DecodeMessageId", "-i 7F0000010A3C18B4AAC2059D8A1B0000"),
    ("queryCq", "-t Orders -q 0 -i 0"),
    ("getNamesrvConfig", "-n 10.0.0.1:9876"),
    (
        "updateNamesrvConfig",
        "-k scanNotActiveBrokerInterval -v 5000",
    ),
    ("updateKvConfig", "-s shop -k rate -v 7"),
    ("deleteKvConfig", "-s shop -k rate"),
    ("wipeWritePerm", "-b broker-a"),
    ("addWritePerm", "-b broker-a"),
    ("exportConfigs", "-c DefaultCluster -f configs.json"),
    ("exportMetadata", "-c DefaultCluster -f metadata.json"),
    ("exportMetrics", "-c DefaultCluster -f metrics.json"),
];

/// The words behind the name of a command in its example.
pub fn words_of(command: &str) -> Option<&'static str> {
    let mut all = EXAMPLES.iter();
    all.find(|(name, _)| *name == command)
        .map(|(_, words)| *words)
}

/// The example of a command as help shows it, with quotes where a shell wants them.
pub fn help_of(command: &str) -> Option<String> {
    let words = words_of(command)?.split(' ');
    let words = words.map(|word| match word.contains([';', '|', '#']) {
        true => format!("'{word}'"),
        false => word.to_owned(),
    });
    let words: Vec<String> = words.collect();
    Some(format!(
        "Example:\n  ringmq admin {command} {}",
        words.join(" ")
    ))
}
