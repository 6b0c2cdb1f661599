use crate::command::ask;
use std::path::Path;

fn run(line: &str) -> crate::command::Found {
    ask(([127, 0, 0, 1], 1).into(), line)
}

#[test]
fn shells_get_their_completions() {
    for (shell, text) in [
        ("bash", "complete "),
        ("zsh", "#compdef ringmq"),
        ("fish", "complete -c ringmq"),
    ] {
        run(&format!("completions {shell}")).good().shows(&[
            text,
            "topicList",
            "resetOffsetByTime",
        ]);
    }
    run("completions dos").refused(2, "dos");
}

#[test]
fn every_command_has_its_page() {
    run("man")
        .good()
        .shows(&[".TH ringmq 1", "admin", "produce"]);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man-pages");
    run(&format!("man --dir {}", dir.display())).good();
    for page in [
        "ringmq.1",
        "ringmq-admin.1",
        "ringmq-admin-topicList.1",
        "ringmq-consume.1",
    ] {
        let text = std::fs::read_to_string(dir.join(page)).unwrap_or_else(|_| panic!("{page}"));
        assert!(text.contains(".SH NAME"), "{page}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
    run("man --dir /proc/none").refused(1, "/proc/none");
}

#[test]
fn help_has_examples_and_codes() {
    run("admin --help")
        .good()
        .shows(&["Exit codes", "topicList", "topic-list"]);
    run("produce --help").good().shows(&["--rate", "Examples:"]);
    run("consume --help").good().shows(&["--from", "--follow"]);
    for command in [
        "topicList",
        "topicRoute",
        "topicStatus",
        "updateTopic",
        "updateTopicPerm",
        "deleteTopic",
        "clusterList",
        "brokerStatus",
        "getBrokerConfig",
        "updateBrokerConfig",
        "updateSubGroup",
        "deleteSubGroup",
        "consumerProgress",
        "consumerConnection",
        "consumerStatus",
        "resetOffsetByTime",
        "skipAccumulatedMessage",
        "queryMsgById",
        "queryMsgByKey",
        "queryMsgByUniqueKey",
        "queryMsgByOffset",
        "printMsg",
        "consumeMessage",
        "sendMessage",
    ] {
        let example = format!("ringmq admin {command} -");
        let help = run(&format!("admin {command} --help")).good();
        help.shows(&["Example:", &example]);
    }
}
