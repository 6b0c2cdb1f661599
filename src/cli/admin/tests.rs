use super::*;
use clap::{CommandFactory, FromArgMatches, Parser};

#[derive(Debug, Parser)]
struct Tool {
    #[command(flatten)]
    args: AdminArgs,
}

fn parse(line: &str) -> Result<AdminArgs, clap::Error> {
    let command = with_aliases(Tool::command());
    let words = std::iter::once("ringmq").chain(line.split(' '));
    let matches = command.try_get_matches_from(words)?;
    Ok(Tool::from_arg_matches(&matches)?.args)
}

#[test]
fn names_change_between_both_forms() {
    for (camel, kebab) in [
        ("topicList", "topic-list"),
        ("cleanExpiredCQ", "clean-expired-cq"),
        ("checkMsgSendRT", "check-msg-send-rt"),
        ("queryMsgTraceById", "query-msg-trace-by-id"),
        ("DecodeMessageId", "decode-message-id"),
        ("producer", "producer"),
    ] {
        assert_eq!(kebab_case(camel), kebab);
    }
    assert_eq!(camel_case("read-queue-nums"), "readQueueNums");
}

#[test]
fn the_definition_is_sound() {
    with_aliases(Tool::command()).debug_assert();
}

#[test]
fn every_command_has_an_example_that_it_understands() {
    let command = with_aliases(Tool::command());
    let mut count = 0;
    for sub in command.get_subcommands() {
        let name = sub.get_name();
        let words = examples::words_of(name).unwrap_or_else(|| panic!("{name} has no example"));
        let line = format!("{name} {words}");
        if let Err(error) = parse(&line) {
            panic!("{line}: {error}");
        }
        let help = sub.get_after_help().expect("an example").to_string();
        assert!(help.contains(&format!("ringmq admin {name} ")), "{help}");
        count += 1;
    }
    assert!(count > 50, "{count}");
    let quoted = examples::help_of("updateOrderConf").expect("an example");
    assert!(quoted.ends_with("-v 'broker-a:4;broker-b:4'"), "{quoted}");
}

/// Lines as they are written for RocketMQ's own tool.
#[test]
fn rocketmqs_lines_are_understood() {
    for line in [
        "topicList -n a:1",
        "topicList -n a:1;b:2 -c",
        "topic-list",
        "topicRoute -t T -l",
        "topicStatus -n a:1 -t T -c C",
        "topicClusterList -t T",
        "updateTopic -n a:1 -b a:2 -t T -r 4 -w 4 -p 6 -o true -u false -s false -a +message.type=FIFO",
        "updateTopic --namesrvAddr a:1 --clusterName C --topic T --readQueueNums 1 --writeQueueNums 1",
        "update-topic --cluster-name C --topic T --read-queue-nums 1 --perm rw",
        "updateTopicPerm -c C -t T -p 4",
        "updateTopicList -b a:1 -f x.json",
        "deleteTopic -n a:1 -c C -t T",
        "updateOrderConf -t T -m put -v b:4",
        "allocateMQ -t T -i a,b",
        "statsAll -a -t T",
        "clusterList -m -c C",
        "clusterRT -a 10 -s 128 -c C",
        "brokerStatus -b a:1",
        "brokerStatus -c C",
        "getBrokerConfig -b a:1",
        "updateBrokerConfig -b a:1 -k x -v -1",
        "updateBrokerConfig -c C -a true -k x -v y",
        "updateBrokerConfig -c C -a -k x -v y",
        "brokerConsumeStats -b a:1 -l 5 -o false",
        "sendMsgStatus -b broker -s 10 -c 5",
        "cleanExpiredCQ -c C",
        "cleanUnusedTopic -b a:1",
        "deleteExpiredCommitLog -n a:1 -c C",
        "haStatus -b a:1",
        "updateSubGroup -c C -g g -s true -m false -d false -o true -q 2 -r 3 -i 0 -w 1 -a true",
        "updateSubGroupList -c C -f x.json",
        "deleteSubGroup -c C -g g -r true",
        "getConsumerConfig -g g",
        "setConsumeMode -c C -t T -g g -m POP -q 3",
        "consumerProgress",
        "consumerProgress -g g -t T -s true -c C",
        "consumerProgress -g g -s",
        "consumerConnection -g g -b a:1",
        "consumerStatus -g g -i id -s -b a:1",
        "consumer -g g",
        "producerConnection -g g -t T",
        "producer -b a:1",
        "resetOffsetByTime -g g -t T -s now",
        "resetOffsetByTime -g g -t T -s -1 -f true",
        "resetOffsetByTime -g g -t T -s 2026-11-30#06:10:11:123 -b a:1 -q 0 -o 5",
        "resetOffsetByTimeOld -g g -t T -s 1700000000000",
        "skipAccumulatedMessage -g g -t T -f true",
        "cloneGroupOffset -s a -d b -t T -o true",
        "getConsumerStatus -g g -t T -i id",
        "queryMsgById -i ID -t T",
        "queryMsgById -i ID -t T -g g -d client",
        "queryMsgById -i ID -s true -u unit",
        "queryMsgById -i ID -f GBK",
        "queryMsgByOffset -t T -b broker -i 0 -o 5 -f UTF-8",
        "printMsg -t T -c GBK -l parent",
        "printMsgByQueue -t T -a broker -i 0 -c UTF-8",
        "sendMessage -t T -p body -m true",
        "brokerConsumeStats -b a:1 -t 3000 --order true",
        "brokerConsumeStats -b a:1 --timeoutMillis 3000",
        "clusterList -i 5",
        "haStatus -c C -i 3",
        "clusterRT -s 128 -i 10 -p true -m room",
        "queryMsgByKey -t T -k K -b 0 -e 1700000000000 -m 10",
        "queryMsgByUniqueKey -t T -i ID -a",
        "queryMsgByOffset -t T -b broker -i 0 -o 5",
        "queryMsgTraceById -i ID -t T -c 5",
        "printMsg -t T -s TagA||TagB -b 0 -e now -d false",
        "printMsgByQueue -t T -a broker -i 0 -f true -p false -d true",
        "consumeMessage -t T -b broker -i 0 -o 5 -c 3 -g g",
        "consumeMessage -t T -s 0 -e now",
        "sendMessage -t T -p body -k k -c tag -b broker -i 1",
        "checkMsgSendRT -t T -a 10 -s 100",
        "DecodeMessageId -i ID",
        "decode-message-id -i ID",
        "queryCq -t T -q 1 -i 0 -c 5 -b a:1 -g g",
        "getNamesrvConfig",
        "updateNamesrvConfig -k x -v y",
        "updateKvConfig -s ns -k k -v v",
        "deleteKvConfig -s ns -k k",
        "wipeWritePerm -b broker",
        "addWritePerm --brokerName broker",
        "exportConfigs -c C -f /tmp/x",
        "exportMetadata -c C -t",
        "exportMetrics -c C",
        "topicStatus --output json --yes --timeout 500ms -t T",
    ] {
        if let Err(error) = parse(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "topicStatus",
        "updateTopic -t T -b a:1 -c C",
        "updateTopic -t T -c C -p 8",
        "updateTopic -t T -c C -r -1",
        "updateTopic -t T -c C -o maybe",
        "resetOffsetByTime -g g -t T -s yesterday",
        "resetOffsetByTime -g g -t T -s now -q 0",
        "resetOffsetByTime -g g -t T -s now -b b -o 5",
        "queryMsgById -i ID -g g",
        "queryMsgById -i ID -g g -d client -s true",
        "queryMsgById -i ID -f EBCDIC",
        "clusterList -i 0",
        "brokerConsumeStats -b a:1 -t 0",
        "consumerProgress -t T",
        "topicList --timeout 0s",
        "topicList --timeout 1d",
        "topicList --output xml",
        "nothing",
    ] {
        assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
    }
}
