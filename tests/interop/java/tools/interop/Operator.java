package interop;

import interop.Peer.Kind;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * {@code Operator PREFIX PATTERN}: each daily command of {@code ringmq admin} against what {@code mqadmin} answers to the same
 * question, and what one of them changes as the other sees it.
 */
public final class Operator {
    private static final String CLUSTER = "DefaultCluster";
    private static final String BROKER = "broker-a";
    private static final String ADDRESS = Cluster.env("BROKER");

    public static void main(String[] args) throws Exception {
        Mqadmin.prepare();
        Suite suite = new Suite(args[0], args[1]);
        suite.add("consumers", Operator::consumers);
        suite.add("resetOffsetByTime", Operator::resetOffsetByTime);
        suite.add("topicList-topicClusterList", Operator::topicList);
        suite.add("updateTopic-topicRoute-updateTopicPerm-deleteTopic", Operator::topicLife);
        suite.add("topicStatus", Operator::topicStatus);
        suite.add("clusterList-brokerStatus", Operator::broker);
        suite.add("getBrokerConfig-updateBrokerConfig-getNamesrvConfig", Operator::configuration);
        suite.add("updateSubGroup-getConsumerConfig-deleteSubGroup", Operator::subGroup);
        suite.add("updateKvConfig-deleteKvConfig", Operator::kvConfig);
        suite.add("producerConnection", Operator::producerConnection);
        suite.add("queryMsg", Operator::queryMsg);
        suite.add("sendMessage-printMsg-consumeMessage-queryCq", Operator::messages);
        suite.add("exit-codes", Operator::exitCodes);
        suite.run(4);
        suite.run("wipeWritePerm-addWritePerm", Operator::writePerm);
        Peer.shutdown();
        Cluster.shutdown();
        System.exit(suite.failed() == 0 ? 0 : 1);
    }

    /** How a run of the program ended. */
    private static final class Ended {
        final int code;
        final String out;
        final String errors;

        Ended(int code, String out, String errors) {
            this.code = code;
            this.out = out;
            this.errors = errors;
        }
    }

    private static Ended run(String... args) throws Exception {
        List<String> command = new ArrayList<>(List.of(Cluster.env("RINGMQ_BIN"), "admin"));
        command.addAll(Arrays.asList(args));
        Path out = Files.createTempFile(Path.of(Cluster.env("PEER_FOLDER")), "admin", ".out");
        Path errors = Files.createTempFile(Path.of(Cluster.env("PEER_FOLDER")), "admin", ".err");
        Process process = new ProcessBuilder(command).redirectOutput(out.toFile()).redirectError(errors.toFile()).start();
        process.getOutputStream().close();
        boolean ended = process.waitFor(40, TimeUnit.SECONDS);
        process.destroyForcibly();
        Check.that(ended, "ringmq admin " + String.join(" ", args) + " does not end");
        return new Ended(process.exitValue(), Files.readString(out), Files.readString(errors));
    }

    /** What our command answers in JSON; it must do what it is asked. */
    @SuppressWarnings("unchecked")
    private static Map<String, Object> ours(String... args) throws Exception {
        List<String> all = new ArrayList<>(Arrays.asList(args));
        all.addAll(List.of("-n", Cluster.NAMESRV, "--output", "json", "--yes"));
        Ended ended = run(all.toArray(new String[0]));
        Check.that(ended.code == 0, "ringmq admin " + String.join(" ", args) + " ends with " + ended.code + ": " + ended.errors + ended.out);
        return RemotingSerializable.fromJson(ended.out, Map.class);
    }

    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> rows(Map<String, Object> document, String table) {
        Check.that(document.get(table) instanceof List, "no table " + table + " in " + document);
        return (List<Map<String, Object>>) document.get(table);
    }

    private static Map<String, Object> only(Map<String, Object> document, String table) {
        List<Map<String, Object>> rows = rows(document, table);
        Check.equal("rows of " + table + " in " + document, 1, rows.size());
        return rows.get(0);
    }

    /** The columns of a row as text, as mqadmin has them. */
    private static List<String> columns(Map<String, Object> row, String... names) {
        List<String> found = new ArrayList<>();
        for (String name : names) {
            Check.that(row.containsKey(name), "no column " + name + " in " + row);
            found.add(String.valueOf(row.get(name)));
        }
        return found;
    }

    private static Set<String> lines(String printed) {
        Set<String> lines = new TreeSet<>();
        for (String line : printed.split("\n")) {
            if (!line.isBlank()) {
                lines.add(line.trim());
            }
        }
        return lines;
    }

    /** "key = value" and "key : value" lines. */
    private static Map<String, String> pairs(String printed) {
        Map<String, String> pairs = new TreeMap<>();
        Matcher line = Pattern.compile("(?m)^ ?(\\w[^\\s=:]*) ?[=:] ?(.*?) *$").matcher(printed);
        while (line.find()) {
            pairs.put(line.group(1), line.group(2));
        }
        Check.that(pairs.size() > 5, "no pairs in " + printed);
        return pairs;
    }

    /** The pairs of an only row. */
    private static Map<String, String> pairs(Map<String, Object> document, String table, String key) {
        Object found = only(document, table).get(key);
        Check.that(found instanceof Map, "no " + key + " in " + document);
        Map<String, String> pairs = new TreeMap<>();
        // mqadmin's output has runs of blanks made one.
        ((Map<?, ?>) found).forEach((name, value) -> pairs.put((String) name, ((String) value).replaceAll("[ \\t]+", " ").trim()));
        return pairs;
    }

    private static void topicList(Case c) throws Exception {
        String topic = c.topic(1);
        // Other cases make topics meanwhile.
        Check.within(10, "both list the same topics, " + topic + " among them", () -> {
            Set<String> own = new TreeSet<>();
            rows(ours("topicList"), "topics").forEach(row -> own.add((String) row.get("topic")));
            return own.contains(topic) && own.equals(lines(Mqadmin.mqadmin("topicList")));
        });
        Check.equal("clusters", Mqadmin.mqadmin("topicClusterList", "-t", topic).trim(),
            only(ours("topicClusterList", "-t", topic), "clusters").get("cluster"));
    }

    private static void topicLife(Case c) throws Exception {
        String topic = Cluster.unique("admin-topic");
        ours("updateTopic", "-b", ADDRESS, "-t", topic, "-r", "3", "-w", "3");
        Mqadmin.expect(Mqadmin.mqadmin("topicRoute", "-t", topic), "\"readQueueNums\":3", "\"writeQueueNums\":3", "\"perm\":6", ADDRESS);
        Mqadmin.mqadmin("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "5", "-w", "4", "-p", "4");
        Check.equal("route", List.of(CLUSTER, BROKER, "0", ADDRESS, "5", "4", "r"), columns(only(ours("topicRoute", "-t", topic), "brokers"),
            "cluster", "brokerName", "brokerId", "address", "readQueueNums", "writeQueueNums", "perm"));
        ours("updateTopicPerm", "-c", CLUSTER, "-t", topic, "-p", "6");
        Mqadmin.expect(Mqadmin.mqadmin("topicRoute", "-t", topic), "\"readQueueNums\":5", "\"writeQueueNums\":4", "\"perm\":6");
        ours("deleteTopic", "-c", CLUSTER, "-t", topic);
        Mqadmin.expect(Mqadmin.mqadminRaw("topicRoute", "-t", topic), "CODE: 17");
        Check.that(!lines(Mqadmin.mqadmin("topicList")).contains(topic), "topicList still shows " + topic);
    }

    private static void topicStatus(Case c) throws Exception {
        String topic = c.topic(3);
        Case.sendSome(topic, "tag", 0, 8);
        String printed = Mqadmin.mqadmin("topicStatus", "-t", topic);
        List<Map<String, Object>> queues = rows(ours("topicStatus", "-t", topic), "queues");
        Check.equal("queues", 3, queues.size());
        for (Map<String, Object> each : queues) {
            List<String> own = columns(each, "brokerName", "queueId", "minOffset", "maxOffset");
            Check.equal("row", Mqadmin.row(printed, own.get(0), own.get(1)).subList(0, 4), own);
            Check.between("last message", System.currentTimeMillis() - 60_000, System.currentTimeMillis() + 1000,
                ((Number) each.get("lastUpdateTimestamp")).longValue());
        }
    }

    private static void broker(Case c) throws Exception {
        Map<String, Object> own = only(ours("clusterList"), "brokers");
        Check.equal("clusterList", Mqadmin.row(Mqadmin.mqadmin("clusterList"), CLUSTER, BROKER).subList(0, 5),
            columns(own, "cluster", "brokerName", "brokerId", "address", "version"));
        Map<String, String> theirs = pairs(Mqadmin.mqadmin("brokerStatus", "-b", ADDRESS));
        Map<String, String> figures = pairs(ours("brokerStatus", "-b", ADDRESS), "brokers", "figures");
        Check.equal("names of figures", theirs.keySet(), figures.keySet());
        for (String each : List.of("bootTimestamp", "brokerVersion", "brokerVersionDesc", "brokerActive")) {
            Check.equal(each, theirs.get(each), figures.get(each));
        }
    }

    private static void configuration(Case c) throws Exception {
        Check.equal("getBrokerConfig", pairs(Mqadmin.mqadmin("getBrokerConfig", "-b", ADDRESS)),
            pairs(ours("getBrokerConfig", "-b", ADDRESS), "brokers", "settings"));
        Check.equal("getNamesrvConfig", pairs(Mqadmin.mqadmin("getNamesrvConfig")), pairs(ours("getNamesrvConfig"), "nameservers", "settings"));
        String key = "defaultTopicQueueNums";
        String before = pairs(Mqadmin.mqadmin("getBrokerConfig", "-b", ADDRESS)).get(key);
        ours("updateBrokerConfig", "-b", ADDRESS, "-k", key, "-v", "6");
        Check.equal(key, "6", pairs(Mqadmin.mqadmin("getBrokerConfig", "-b", ADDRESS)).get(key));
        ours("updateBrokerConfig", "-c", CLUSTER, "-k", key, "-v", before);
        Check.equal(key, before, pairs(Mqadmin.mqadmin("getBrokerConfig", "-b", ADDRESS)).get(key));
    }

    private static void subGroup(Case c) throws Exception {
        String group = Cluster.unique("admin-group");
        ours("updateSubGroup", "-c", CLUSTER, "-g", group, "-r", "5");
        Map<String, String> theirs = pairs(Mqadmin.mqadmin("getConsumerConfig", "-g", group));
        Check.equal("retryMaxTimes", "5", theirs.get("retryMaxTimes"));
        Mqadmin.mqadmin("updateSubGroup", "-b", ADDRESS, "-g", group, "-r", "3", "-s", "false");
        theirs = pairs(Mqadmin.mqadmin("getConsumerConfig", "-g", group));
        Map<String, Object> own = only(ours("getConsumerConfig", "-g", group), "groups");
        for (String each : List.of("consumeEnable", "consumeBroadcastEnable", "retryQueueNums", "retryMaxTimes", "brokerId",
            "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable")) {
            Check.equal(each, theirs.get(each), String.valueOf(own.get(each)));
        }
        ours("deleteSubGroup", "-c", CLUSTER, "-g", group);
        // Asking for a missing group may create it anew, with defaults.
        Check.that(!Mqadmin.mqadminRaw("getConsumerConfig", "-g", group).contains("retryMaxTimes = 3"), group + " still exists");
    }

    private static void kvConfig(Case c) throws Exception {
        String key = Cluster.unique("key");
        Mqadmin.mqadmin("updateKvConfig", "-s", "admin-interop", "-k", key, "-v", "value 1");
        Check.equal("value", "value 1", ours("deleteKvConfig", "-s", "admin-interop", "-k", key).get("valueBefore"));
        ours("updateKvConfig", "-s", "admin-interop", "-k", key, "-v", "value 2");
        Check.equal("value", "value 2", ours("deleteKvConfig", "-s", "admin-interop", "-k", key).get("valueBefore"));
    }

    /** The rows of queues as mqadmin prints them. */
    private static void sameProgress(String group, String topic) throws Exception {
        String printed = Mqadmin.mqadmin("consumerProgress", "-g", group);
        Map<String, Object> progress = ours("consumerProgress", "-g", group);
        int found = 0;
        for (Map<String, Object> each : rows(progress, "queues")) {
            if (each.get("topic").equals(topic)) {
                List<String> own = columns(each, "topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "diff");
                Check.equal("row", Mqadmin.row(printed, topic, BROKER, own.get(2)).subList(0, 6), own);
                found++;
            }
        }
        Check.equal("queues of " + topic, 2, found);
        Mqadmin.expect(printed, "Consume Diff Total: " + progress.get("totalDiff"));
    }

    private static void consumers(Case c) throws Exception {
        Group group = new Group(c, c.topic(2), 2, "tags", "TagA || TagB");
        Group.Member rust = group.join(Kind.RUST);
        Group.Member java = group.join(Kind.JAVA);
        group.awaitSplit(1, 1);
        List<Message> sent = Case.sendSome(group.topic, "TagA", 0, 20);
        Check.within(Case.PATIENCE, "all arrive", () -> group.arrivals().size() == sent.size());
        Map<String, Object> own = ours("consumerConnection", "-g", group.name);
        String printed = Mqadmin.mqadmin("consumerConnection", "-g", group.name);
        Check.equal("members", 2, rows(own, "clients").size());
        for (Map<String, Object> each : rows(own, "clients")) {
            List<String> row = columns(each, "clientId", "clientAddr", "language", "version");
            Check.equal("member", Mqadmin.row(printed, row.get(0)), row);
        }
        for (Map<String, Object> each : rows(own, "subscriptions")) {
            Mqadmin.expect(printed, each.get("topic") + " " + each.get("subString"));
        }
        Mqadmin.expect(printed, "ConsumeType: " + own.get("consumeType"), "MessageModel: " + own.get("messageModel"),
            "ConsumeFromWhere: " + own.get("consumeFromWhere"));
        Set<String> owners = new TreeSet<>();
        rows(ours("consumerStatus", "-g", group.name), "queues").forEach(each -> {
            if (each.get("topic").equals(group.topic)) {
                owners.add((String) each.get("clientId"));
            }
        });
        Check.equal("clients with queues", 2, owners.size());
        Check.that(owners.toString().contains("@" + rust.name) && owners.toString().contains("@" + java.name), "clients with queues: " + owners);
        Check.within(30, "progress reaches the broker", () -> Mqadmin.mqadmin("consumerProgress", "-g", group.name).contains("Diff Total: 0"));
        sameProgress(group.name, group.topic);
        rust.close();
        java.close();
        Case.sendSome(group.topic, "TagB", 20, 6);
        sameProgress(group.name, group.topic);
        Check.equal("behind", 6, ours("consumerProgress", "-g", group.name).get("totalDiff"));
        List<Map<String, Object>> rates = rows(ours("statsAll", "-t", group.topic), "rates");
        Check.that(rates.stream().anyMatch(each -> group.name.equals(each.get("group")) && Long.valueOf(6).equals(
            ((Number) each.get("accumulation")).longValue())), "statsAll: " + rates);
    }

    private static void producerConnection(Case c) throws Exception {
        String topic = c.topic(1);
        DefaultMQProducer producer = c.producer();
        producer.start();
        Case.sent(producer.send(Case.message(topic, "tag", 1)));
        Mqadmin.heartbeat(producer);
        String group = producer.getProducerGroup();
        List<String> row = columns(only(ours("producerConnection", "-g", group, "-t", topic), "clients"), "clientAddr", "language", "version");
        String clientId = producer.getDefaultMQProducerImpl().getMqClientFactory().getClientId();
        Mqadmin.expect(Mqadmin.mqadmin("producerConnection", "-g", group, "-t", topic), clientId, row.get(0), row.get(1));
    }

    private static void resetOffsetByTime(Case c) throws Exception {
        Group group = new Group(c, 2);
        Group.Member member = group.join(Kind.JAVA);
        Sent.Producer producer = new Sent.Producer(c, Peer.of(Kind.JAVA));
        List<Sent> before = producer.send(group.topic, 10);
        Thread.sleep(50);
        long middle = System.currentTimeMillis();
        Thread.sleep(50);
        List<Sent> after = producer.send(group.topic, 10);
        group.awaitAll(before, Case.PATIENCE);
        group.awaitAll(after, Case.PATIENCE);
        member.close();
        List<Map<String, Object>> queues = rows(ours("resetOffsetByTime", "-g", group.name, "-t", group.topic, "-s", Long.toString(middle)), "queues");
        Check.equal("queues", 2, queues.size());
        String printed = Mqadmin.mqadmin("consumerProgress", "-g", group.name);
        for (Map<String, Object> each : queues) {
            Check.equal("offset now", Mqadmin.row(printed, group.topic, BROKER, String.valueOf(each.get("queueId"))).get(4),
                String.valueOf(each.get("offset")));
        }
        Mqadmin.expect(printed, "Consume Diff Total: 10");
        group.join(Kind.JAVA);
        Check.within(Case.PATIENCE, "the later half comes again", () -> group.arrivals().size() >= 30);
        Thread.sleep(300);
        after.forEach(each -> Check.equal("arrivals", 2, group.byNumber().get(each.number).size()));
        Check.equal("arrivals", 30, group.arrivals().size());
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> message(Map<String, Object> document) {
        Check.that(document.get("message") instanceof Map, "no message in " + document);
        return (Map<String, Object>) document.get("message");
    }

    /** Everything that mqadmin prints of a message is in ours. */
    private static void same(String printed, Map<String, Object> own) {
        Map<String, String> theirs = new TreeMap<>();
        Matcher line = Pattern.compile("(?m)^ ?([A-Z][\\w ]*?): (.*?) *$").matcher(printed);
        while (line.find()) {
            theirs.put(line.group(1), line.group(2));
        }
        for (String[] each : new String[][] {{"OffsetID", "offsetMsgId"}, {"Topic", "topic"}, {"Queue ID", "queueId"}, {"Queue Offset", "queueOffset"},
            {"CommitLog Offset", "commitLogOffset"}, {"Reconsume Times", "reconsumeTimes"}, {"Born Host", "bornHost"}, {"Store Host", "storeHost"},
            {"System Flag", "sysFlag"}}) {
            Check.that(theirs.containsKey(each[0]), each[0] + " is missing in " + printed);
            Check.equal(each[0], theirs.get(each[0]), String.valueOf(own.get(each[1])));
        }
        Check.equal("Tags", theirs.get("Tags"), "[" + own.get("tags") + "]");
        Check.equal("Keys", theirs.get("Keys"), "[" + own.get("keys") + "]");
        Map<?, ?> properties = (Map<?, ?>) own.get("properties");
        properties.forEach((key, value) -> Mqadmin.expect(theirs.get("Properties"), key + "=" + value));
        Check.equal("number of properties", theirs.get("Properties").split(", ").length, properties.size());
    }

    private static void queryMsg(Case c) throws Exception {
        String topic = c.topic(1);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 10);
        Map<String, MessageExt> stored = Cluster.readById(topic, 10);
        String key = Case.Inbox.id(sent.get(3));
        String id = ids(topic, 3);
        String printed = Mqadmin.mqadmin("queryMsgById", "-t", topic, "-i", id);
        same(printed, message(ours("queryMsgById", "-t", topic, "-i", id)));
        same(printed, message(ours("queryMsgByUniqueKey", "-t", topic, "-i", key)));
        same(printed, message(ours("queryMsgByOffset", "-t", topic, "-b", BROKER, "-i", "0", "-o", "3")));
        Check.equal("body", new String(stored.get(key).getBody(), StandardCharsets.UTF_8),
            message(ours("queryMsgById", "-t", topic, "-i", id)).get("body"));
        for (String each : List.of("key-3", "order-0")) {
            printed = Mqadmin.mqadmin("queryMsgByKey", "-t", topic, "-k", each);
            Set<String> found = new TreeSet<>();
            for (Map<String, Object> row : rows(ours("queryMsgByKey", "-t", topic, "-k", each), "messages")) {
                found.add((String) row.get("msgId"));
                Mqadmin.expect(printed, (String) row.get("msgId"));
            }
            Set<String> wanted = each.equals("key-3") ? Set.of(key) : Set.of(Case.Inbox.id(sent.get(0)), Case.Inbox.id(sent.get(7)));
            Check.equal("messages with the key " + each, wanted, found);
        }
    }

    /** The broker's id of the message at an offset. */
    private static String ids(String topic, int offset) throws Exception {
        String printed = Mqadmin.mqadmin("queryMsgByOffset", "-t", topic, "-b", BROKER, "-i", "0", "-o", Integer.toString(offset));
        Matcher id = Pattern.compile("OffsetID: ([0-9A-F]{32})").matcher(printed);
        Check.that(id.find(), "no OffsetID in " + printed);
        return id.group(1);
    }

    private static void messages(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 6);
        Map<String, Object> result = ours("sendMessage", "-t", topic, "-p", "to one queue", "-b", BROKER, "-i", "1", "-c", "TagB", "-k", "key-x");
        Check.equal("result", List.of(BROKER, "1", "3", "SEND_OK"), columns(result, "brokerName", "queueId", "queueOffset", "sendStatus"));
        MessageExt got = null;
        for (MessageExt each : Cluster.readById(topic, 7).values()) {
            got = "TagB".equals(each.getTags()) ? each : got;
        }
        Check.that(got != null, "the message of ringmq is missing");
        Check.equal("what we sent", "to one queue key-x", new String(got.getBody(), StandardCharsets.UTF_8) + " " + got.getKeys());
        String printed = Mqadmin.mqadmin("printMsg", "-t", topic, "-s", "TagA");
        List<Map<String, Object>> found = rows(ours("printMsg", "-t", topic, "-s", "TagA"), "messages");
        Check.equal("messages", printed.split("MSGID: ").length - 1, found.size());
        found.forEach(each -> Mqadmin.expect(printed, "MSGID: " + each.get("msgId")));
        Set<String> some = new TreeSet<>();
        rows(ours("consumeMessage", "-t", topic, "-b", BROKER, "-i", "0", "-o", "1", "-c", "2"), "messages")
            .forEach(each -> some.add((String) each.get("msgId")));
        Check.equal("messages from 1 on", new TreeSet<>(List.of(Case.Inbox.id(sent.get(2)), Case.Inbox.id(sent.get(4)))), some);
        String entries = Mqadmin.mqadmin("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "2", "-b", ADDRESS);
        List<Map<String, Object>> own = rows(ours("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "2", "-b", ADDRESS), "entries");
        Check.equal("entries", 2, own.size());
        own.forEach(each -> Mqadmin.expect(entries, "physicOffset=" + each.get("physicOffset"), "physicSize=" + each.get("physicSize"),
            "tagsCode=" + each.get("tagsCode")));
    }

    private static void exitCodes(Case c) throws Exception {
        String topic = c.topic(1);
        ends(3, "topicRoute", "-t", "missing-topic", "-n", Cluster.NAMESRV);
        ends(3, "topicStatus", "-t", "missing-topic", "-n", Cluster.NAMESRV);
        ends(2, "topicStatus", "-n", Cluster.NAMESRV);
        ends(2, "updateTopic", "-t", "bad topic", "-b", ADDRESS, "-n", Cluster.NAMESRV);
        ends(1, "topicList", "-n", "127.0.0.1:1");
        // Nobody is there to be asked whether it is meant.
        ends(2, "deleteTopic", "-t", topic, "-c", CLUSTER, "-n", Cluster.NAMESRV);
        Check.that(lines(Mqadmin.mqadmin("topicList")).contains(topic), topic + " was deleted without a yes");
    }

    private static void ends(int code, String... args) throws Exception {
        Ended ended = run(args);
        String what = "ringmq admin " + String.join(" ", args) + " printed " + ended.out + ended.errors;
        Check.equal("exit code of " + what, code, ended.code);
        Check.that(ended.out.isBlank() && !ended.errors.isBlank(), "errors go to standard error: " + what);
    }

    private static void writePerm(Case c) throws Exception {
        String topic = c.topic(1);
        ours("wipeWritePerm", "-b", BROKER);
        try {
            Mqadmin.expect(Mqadmin.mqadmin("topicRoute", "-t", topic), "\"perm\":4");
        } finally {
            ours("addWritePerm", "-b", BROKER);
        }
        Mqadmin.expect(Mqadmin.mqadmin("topicRoute", "-t", topic), "\"perm\":6");
    }
}
