package interop;

import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.DefaultParser;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** {@code Mqadmin PREFIX PATTERN}: the operator's tool, command by command in this JVM, and once as a process of its own. */
public final class Mqadmin {
    private static final String CLUSTER = "DefaultCluster";
    private static final String BROKER = "broker-a";
    private static final String ADDRESS = Cluster.env("BROKER");

    public static void main(String[] args) throws Exception {
        prepare();
        Suite suite = new Suite(args[0], args[1]);
        suite.add("process", Mqadmin::process);
        suite.add("topicList", Mqadmin::topicList);
        suite.add("clusterList", Mqadmin::clusterList);
        suite.add("updateTopic-topicRoute-deleteTopic", Mqadmin::topicLife);
        suite.add("updateTopicPerm", Mqadmin::updateTopicPerm);
        suite.add("topicStatus", Mqadmin::topicStatus);
        suite.add("topicClusterList", Mqadmin::topicClusterList);
        suite.add("updateSubGroup-deleteSubGroup", Mqadmin::subGroup);
        suite.add("sendMessage", Mqadmin::sendMessage);
        suite.add("consumeMessage", Mqadmin::consumeMessage);
        suite.add("printMsg", Mqadmin::printMsg);
        suite.add("queryCq", Mqadmin::queryCq);
        suite.add("queryMsgById", Mqadmin::queryMsgById);
        suite.add("queryMsgByKey", Mqadmin::queryMsgByKey);
        suite.add("queryMsgByUniqueKey", Mqadmin::queryMsgByUniqueKey);
        suite.add("queryMsgByOffset", Mqadmin::queryMsgByOffset);
        suite.add("consumerConnection-consumerStatus", Mqadmin::consumerOnline);
        suite.add("producerConnection", Mqadmin::producerConnection);
        suite.add("consumerProgress", Mqadmin::consumerProgress);
        suite.add("resetOffsetByTime", Mqadmin::resetOffsetByTime);
        suite.add("brokerStatus", Mqadmin::brokerStatus);
        suite.add("getBrokerConfig-updateBrokerConfig", Mqadmin::brokerConfig);
        suite.add("updateKvConfig-deleteKvConfig", Mqadmin::kvConfig);
        suite.add("getNamesrvConfig", Mqadmin::namesrvConfig);
        suite.add("statsAll", Mqadmin::statsAll);
        suite.run(8);
        suite.run("wipeWritePerm-addWritePerm", Mqadmin::writePerm);
        Cluster.shutdown();
        System.exit(suite.failed() == 0 ? 0 : 1);
    }

    /** What commands need, once a process. */
    static void prepare() {
        System.setProperty("rocketmq.namesrv.addr", Cluster.NAMESRV);
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
    }

    /** Commands print to System.out; with several running, each thread's output goes to its own buffer. */
    private static final class PerThread extends OutputStream {
        private final ThreadLocal<ByteArrayOutputStream> captured = new ThreadLocal<>();
        private final PrintStream rest;

        PerThread(PrintStream rest) {
            this.rest = rest;
        }

        @Override
        public void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            ByteArrayOutputStream buffer = captured.get();
            if (buffer == null) {
                rest.write(bytes, from, length);
            } else {
                buffer.write(bytes, from, length);
            }
        }

        @Override
        public void flush() {
            rest.flush();
        }
    }

    /** The table of commands, filled as the tool fills it. */
    private static final class Commands extends MQAdminStartup {
        private static List<SubCommand> all() {
            initCommand();
            return SUB_COMMANDS;
        }
    }

    private static final PerThread OUT = new PerThread(System.out);
    private static final List<SubCommand> COMMANDS = Commands.all();

    /**
     * Runs a command as the tool's main method does, with a fresh instance of it; returns everything it printed, runs of blanks
     * made one.
     */
    static String mqadminRaw(String... args) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        OUT.captured.set(printed);
        try {
            SubCommand known = COMMANDS.stream().filter(each -> each.commandName().equalsIgnoreCase(args[0])).findFirst().orElseThrow();
            SubCommand command = known.getClass().getDeclaredConstructor().newInstance();
            Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
            CommandLine line = ServerUtil.parseCmdLine("mqadmin " + args[0], Arrays.copyOfRange(args, 1, args.length), options, new DefaultParser());
            synchronized (OUT) {
                // The tool names its client after the millisecond.
                Thread.sleep(5);
            }
            command.execute(line, options, null);
        } catch (Exception e) {
            e.printStackTrace(System.out);
        } finally {
            System.out.flush();
            OUT.captured.remove();
        }
        String text = printed.toString(StandardCharsets.UTF_8).replaceAll("[ \\t]+", " ");
        return text.contains("has created already") ? mqadminRaw(args) : text;
    }

    /** Runs a command that must not complain; returns what it printed. */
    static String mqadmin(String... args) {
        String printed = mqadminRaw(args);
        Check.that(!printed.contains("Exception: ") && !printed.contains("\n at "), "mqadmin " + String.join(" ", args) + " printed: " + printed);
        return printed;
    }

    static void expect(String printed, String... parts) {
        for (String part : parts) {
            Check.that(printed.contains(part), "\"" + part + "\" is missing in: " + printed);
        }
    }

    /** The columns of the first line that starts with these words. */
    static List<String> row(String printed, String... start) {
        for (String line : printed.split("\n")) {
            List<String> columns = Arrays.asList(line.trim().split("\\s+"));
            if (columns.size() >= start.length && columns.subList(0, start.length).equals(Arrays.asList(start))) {
                return columns;
            }
        }
        throw new AssertionError("no line " + String.join(" ", start) + " in: " + printed);
    }

    private static String value(String printed, String key) {
        Matcher matcher = Pattern.compile("(?m)^" + key + "\\s*[:=]\\s*(.*?)\\s*$").matcher(printed);
        Check.that(matcher.find(), "no value of " + key + " in: " + printed);
        return matcher.group(1);
    }

    private static void process(Case c) throws Exception {
        Process process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-XX:TieredStopAtLevel=1",
            "-Duser.home=" + System.getProperty("user.home"), "-cp", System.getProperty("java.class.path"),
            "org.apache.rocketmq.tools.command.MQAdminStartup", "clusterList", "-n", Cluster.NAMESRV).redirectErrorStream(true).start();
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        Check.that(process.waitFor(30, TimeUnit.SECONDS), "it does not end");
        Check.equal("exit code", 0, process.exitValue());
        expect(printed, BROKER, ADDRESS);
    }

    private static void topicList(Case c) throws Exception {
        String topic = c.topic(1);
        String printed = mqadmin("topicList");
        expect(printed, topic, "TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest");
        expect(mqadmin("topicList", "-c"), topic, CLUSTER);
    }

    /** Every broker of the process has a row; the ports of shards are ten apart. */
    private static void clusterList(Case c) {
        for (int i = 0; i < Cluster.BROKERS; i++) {
            int colon = ADDRESS.lastIndexOf(':');
            String broker = i == 0 ? BROKER : BROKER + "-" + i;
            String address = ADDRESS.substring(0, colon + 1) + (Integer.parseInt(ADDRESS.substring(colon + 1)) + 10 * i);
            List<String> row = row(mqadmin("clusterList"), CLUSTER, broker, "0", address);
            Check.that(row.get(4).matches("V\\d+_\\d+_\\d+"), "version in " + row);
            Check.equal("activated", "true", row.get(row.size() - 1));
            row = row(mqadmin("clusterList", "-m"), CLUSTER, broker);
            Check.equal("columns of " + row, 6, row.size());
        }
    }

    private static void topicLife(Case c) throws Exception {
        String topic = Cluster.unique("mqadmin-topic");
        expect(mqadmin("updateTopic", "-b", ADDRESS, "-t", topic, "-r", "3", "-w", "3"), "create topic to " + ADDRESS + " success");
        String route = mqadmin("topicRoute", "-t", topic);
        expect(route, "\"readQueueNums\":3", "\"writeQueueNums\":3", "\"perm\":6", "\"brokerName\":\"" + BROKER + "\"", ADDRESS);
        expect(mqadmin("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "5", "-w", "4", "-p", "4"), "create topic to " + ADDRESS + " success");
        expect(mqadmin("topicRoute", "-t", topic), "\"readQueueNums\":5", "\"writeQueueNums\":4", "\"perm\":4");
        expect(mqadmin("deleteTopic", "-c", CLUSTER, "-t", topic), "from cluster [" + CLUSTER + "] success", "from NameServer success");
        expect(mqadminRaw("topicRoute", "-t", topic), "CODE: 17");
        Check.that(!mqadmin("topicList").contains(topic), "topicList still shows " + topic);
        expect(mqadminRaw("updateTopic", "-b", ADDRESS, "-t", "bad topic", "-r", "1", "-w", "1"), "Exception");
    }

    private static void updateTopicPerm(Case c) throws Exception {
        String topic = c.topic(2);
        expect(mqadmin("updateTopicPerm", "-c", CLUSTER, "-t", topic, "-p", "4"), "from 6 to 4 in " + ADDRESS + " success");
        Check.within(5, "route shows the permission", () -> mqadmin("topicRoute", "-t", topic).contains("\"perm\":4"));
        expect(mqadmin("updateTopicPerm", "-b", ADDRESS, "-t", topic, "-p", "6"), "from 4 to 6 in " + ADDRESS + " success");
        Check.within(5, "route shows the permission", () -> mqadmin("topicRoute", "-t", topic).contains("\"perm\":6"));
    }

    private static void topicStatus(Case c) throws Exception {
        String topic = c.topic(3);
        Case.sendSome(topic, "tag", 0, 8);
        String printed = mqadmin("topicStatus", "-t", topic);
        for (int queue = 0; queue < 3; queue++) {
            List<String> row = row(printed, BROKER, Integer.toString(queue));
            Check.equal("min and max of queue " + queue, List.of("0", queue < 2 ? "3" : "2"), row.subList(2, 4));
            Check.that(row.get(4).matches("\\d{4}-\\d\\d-\\d\\d"), "last update in " + row);
        }
        expect(mqadminRaw("topicStatus", "-t", "missing-topic"), "CODE: 17");
    }

    private static void topicClusterList(Case c) throws Exception {
        Check.equal("clusters", CLUSTER, mqadmin("topicClusterList", "-t", c.topic(1)).trim());
    }

    private static void subGroup(Case c) {
        String group = Cluster.unique("mqadmin-group");
        expect(mqadmin("updateSubGroup", "-c", CLUSTER, "-g", group, "-r", "5"), "create subscription group to " + ADDRESS + " success");
        String config = mqadmin("getConsumerConfig", "-g", group);
        Check.equal("retryMaxTimes", "5", value(config, "retryMaxTimes"));
        Check.equal("consumeEnable", "true", value(config, "consumeEnable"));
        expect(mqadmin("updateSubGroup", "-b", ADDRESS, "-g", group, "-r", "3", "-s", "false"), "success");
        config = mqadmin("getConsumerConfig", "-g", group);
        Check.equal("retryMaxTimes", "3", value(config, "retryMaxTimes"));
        Check.equal("consumeEnable", "false", value(config, "consumeEnable"));
        expect(mqadmin("deleteSubGroup", "-c", CLUSTER, "-g", group), "success");
        // Asking for a missing group may create it anew, with defaults.
        Check.that(!mqadminRaw("getConsumerConfig", "-g", group).contains("retryMaxTimes = 3"), group + " still exists");
    }

    private static void sendMessage(Case c) throws Exception {
        String topic = c.topic(2);
        expect(mqadmin("sendMessage", "-t", topic, "-p", "hello", "-k", "key-1", "-c", "TagA"), "SEND_OK", BROKER);
        List<String> row = row(mqadmin("sendMessage", "-t", topic, "-p", "to one queue", "-b", BROKER, "-i", "1"), BROKER, "1");
        Check.equal("result", "SEND_OK", row.get(2));
        MessageExt got = Cluster.readById(topic, 2).get(row.get(3));
        Check.equal("body", "to one queue", new String(got.getBody(), StandardCharsets.UTF_8));
        Check.equal("queue", 1, got.getQueueId());
    }

    private static void consumeMessage(Case c) throws Exception {
        String topic = c.topic(1);
        List<Message> sent = Case.sendSome(topic, "tag", 0, 5);
        String printed = mqadmin("consumeMessage", "-t", topic, "-b", BROKER, "-i", "0", "-o", "1", "-c", "3");
        expect(printed, "Consume ok");
        for (int i = 0; i < 5; i++) {
            Check.equal("message " + i + " in " + printed, 1 <= i && i < 4, printed.contains("MSGID: " + Case.Inbox.id(sent.get(i))));
        }
        expect(mqadmin("consumeMessage", "-t", topic, "-c", "128", "-g", c.group()), "MSGID: " + Case.Inbox.id(sent.get(0)));
    }

    private static void printMsg(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 6);
        Case.sendSome(topic, "TagB", 6, 1);
        String printed = mqadmin("printMsg", "-t", topic, "-s", "TagA");
        sent.forEach(each -> expect(printed, "MSGID: " + Case.Inbox.id(each)));
        Check.equal("messages printed", 6, printed.split("MSGID: ").length - 1);
        expect(mqadmin("queryMsgByOffset", "-t", topic, "-b", BROKER, "-i", "1", "-o", "2"), Case.Inbox.id(sent.get(5)), "Queue Offset: 2");
    }

    private static void queryCq(Case c) throws Exception {
        String topic = c.topic(1);
        Case.sendSome(topic, "TagA", 0, 5);
        String printed = mqadmin("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "2", "-b", ADDRESS);
        expect(printed, "tagsCode=" + "TagA".hashCode(), "physicOffset=");
        Check.equal("units", 2, printed.split("physicOffset=").length - 1);
    }

    private static void queryMsgById(Case c) throws Exception {
        String topic = c.topic(1);
        Message message = Case.message(topic, "TagA", 7);
        SendResult result = Case.send(message);
        String printed = mqadmin("queryMsgById", "-t", topic, "-i", result.getOffsetMsgId());
        expect(printed, result.getOffsetMsgId(), topic, "[TagA]", "key-7", "number=7", "Queue Offset: 0");
    }

    private static void queryMsgByKey(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 10);
        String printed = mqadmin("queryMsgByKey", "-t", topic, "-k", "key-3");
        expect(printed, Case.Inbox.id(sent.get(3)));
        Check.that(!printed.contains(Case.Inbox.id(sent.get(4))), "another message: " + printed);
        // 0 and 7.
        printed = mqadmin("queryMsgByKey", "-t", topic, "-k", "order-0");
        expect(printed, Case.Inbox.id(sent.get(0)), Case.Inbox.id(sent.get(7)));
    }

    private static void queryMsgByUniqueKey(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 4);
        String printed = mqadmin("queryMsgByUniqueKey", "-t", topic, "-i", Case.Inbox.id(sent.get(2)));
        expect(printed, topic, "[TagA]", "key-2", "number=2");
    }

    private static void queryMsgByOffset(Case c) throws Exception {
        String topic = c.topic(1);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 4);
        String printed = mqadmin("queryMsgByOffset", "-t", topic, "-b", BROKER, "-i", "0", "-o", "3");
        expect(printed, Case.Inbox.id(sent.get(3)), "Queue Offset: 3");
    }

    private static void consumerOnline(Case c) throws Exception {
        String topic = c.topic(2);
        String group = c.group();
        DefaultMQPushConsumer consumer = c.push(group);
        Case.Inbox inbox = new Case.Inbox();
        c.collect(consumer, topic, "TagA || TagB", inbox);
        Case.awaitAssigned(consumer, topic, 2);
        String clientId = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        String printed = mqadmin("consumerConnection", "-g", group);
        expect(printed, clientId, "127.0.0.1:", "JAVA", topic + " TagA || TagB", "ConsumeType: CONSUME_PASSIVELY",
            "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET");
        // Relayed by the broker to the consumer and back.
        printed = mqadmin("consumerStatus", "-g", group, "-i", clientId);
        expect(printed, topic, "PROP_CONSUMER_START_TIMESTAMP", "#Consumer Offset#");
        consumer.shutdown();
        Check.within(5, "the consumer is gone", () -> mqadminRaw("consumerConnection", "-g", group).contains("CODE: 206"));
    }

    private static void producerConnection(Case c) throws Exception {
        String topic = c.topic(1);
        DefaultMQProducer producer = c.producer();
        producer.start();
        Case.sent(producer.send(Case.message(topic, "tag", 1)));
        String group = producer.getProducerGroup();
        String clientId = producer.getDefaultMQProducerImpl().getMqClientFactory().getClientId();
        heartbeat(producer);
        expect(mqadmin("producerConnection", "-g", group, "-t", topic), clientId, "127.0.0.1:", "JAVA");
        expect(mqadminRaw("producerConnection", "-g", "missing-group", "-t", topic), "CODE: 1 ");
    }

    /**
     * A producer is known from its heartbeat: at start it knows no broker yet, then every 30 s; this brings one now. The
     * client passes over one that is asked for while another of its own is under way.
     */
    static void heartbeat(DefaultMQProducer producer) throws Exception {
        Check.within(Case.PATIENCE, "a heartbeat is sent",
            () -> producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock());
    }

    private static void consumerProgress(Case c) throws Exception {
        String topic = c.topic(2);
        String group = c.group();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.setPersistConsumerOffsetInterval(300);
        Case.Inbox inbox = new Case.Inbox();
        c.collect(consumer, topic, "*", inbox);
        inbox.awaitAll(Case.sendSome(topic, "tag", 0, 20), Case.PATIENCE);
        Check.within(20, "progress of both queues reaches the broker", () -> {
            String printed = mqadmin("consumerProgress", "-g", group);
            return printed.contains(topic + " " + BROKER + " 0 10 10 0 ") && printed.contains(topic + " " + BROKER + " 1 10 10 0 ")
                && printed.contains("Consume Diff Total: 0");
        });
        consumer.shutdown();
        Case.sendSome(topic, "tag", 20, 6);
        String printed = mqadmin("consumerProgress", "-g", group);
        expect(printed, "Consume Diff Total: 6");
        Check.equal("offsets of a stopped group", List.of("13", "10", "3"), row(printed, topic, BROKER, "0").subList(3, 6));
        List<String> row = row(mqadmin("consumerProgress"), group.length() > 64 ? group.substring(0, 64) : group);
        Check.equal("diff in " + row, "6", row.get(row.size() - 1));
    }

    private static void resetOffsetByTime(Case c) throws Exception {
        String topic = c.topic(2);
        String group = c.group();
        List<Message> first = Case.sendSome(topic, "tag", 0, 10);
        Thread.sleep(50);
        long middle = System.currentTimeMillis();
        Thread.sleep(50);
        List<Message> second = Case.sendSome(topic, "tag", 10, 10);
        List<Message> all = new ArrayList<>(first);
        all.addAll(second);
        Case.Inbox before = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        c.collect(consumer, topic, "*", before);
        before.expectExactly(all, Case.PATIENCE);
        consumer.shutdown();
        String printed = mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", Long.toString(middle));
        for (String queue : List.of("0", "1")) {
            Check.equal("offset of queue " + queue, "5", row(printed, BROKER, queue).get(2));
        }
        Case.Inbox after = new Case.Inbox();
        c.collect(c.push(group), topic, "*", after);
        after.expectExactly(second, Case.PATIENCE);
    }

    private static void brokerStatus(Case c) {
        for (String printed : List.of(mqadmin("brokerStatus", "-b", ADDRESS), mqadmin("brokerStatus", "-c", CLUSTER))) {
            for (String key : List.of("bootTimestamp", "commitLogMaxOffset", "commitLogMinOffset", "putMessageTimesTotal", "dispatchBehindBytes",
                "earliestMessageTimeStamp", "msgPutTotalTodayNow", "msgGetTotalTodayNow", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize")) {
                String text = printed.replaceAll("(?m)^" + Pattern.quote(ADDRESS) + "\\s+|^\\S+\\s+" + Pattern.quote(ADDRESS) + "\\s+", "");
                Check.that(value(text, key).matches("-?\\d+"), key + " is not a number in " + printed);
            }
            expect(printed, "brokerVersionDesc", "V5_", "runtime", "putTps", "getTransferredTps");
        }
    }

    private static void brokerConfig(Case c) {
        String config = mqadmin("getBrokerConfig", "-b", ADDRESS);
        Check.equal("brokerName", BROKER, value(config, "brokerName"));
        Check.equal("brokerClusterName", CLUSTER, value(config, "brokerClusterName"));
        Check.equal("listenPort", ADDRESS.substring(ADDRESS.indexOf(':') + 1), value(config, "listenPort"));
        String before = value(config, "defaultTopicQueueNums");
        expect(mqadmin("updateBrokerConfig", "-b", ADDRESS, "-k", "defaultTopicQueueNums", "-v", "6"), "update broker config success, " + ADDRESS);
        Check.equal("defaultTopicQueueNums", "6", value(mqadmin("getBrokerConfig", "-c", CLUSTER), "defaultTopicQueueNums"));
        expect(mqadmin("updateBrokerConfig", "-c", CLUSTER, "-k", "defaultTopicQueueNums", "-v", before), "update broker config success, " + ADDRESS);
        Check.equal("defaultTopicQueueNums", before, value(mqadmin("getBrokerConfig", "-b", ADDRESS), "defaultTopicQueueNums"));
        expect(mqadminRaw("updateBrokerConfig", "-b", ADDRESS, "-k", "brokerConfigPath", "-v", "/tmp/x"), "CODE: 16");
    }

    private static void kvConfig(Case c) {
        expect(mqadmin("updateKvConfig", "-s", "interop", "-k", "key", "-v", "value"), "create or update kv config to namespace success");
        expect(mqadmin("deleteKvConfig", "-s", "interop", "-k", "key"), "delete kv config from namespace success");
    }

    private static void namesrvConfig(Case c) {
        expect(mqadmin("getNamesrvConfig"), "============" + Cluster.NAMESRV + "============", "listenPort");
    }

    private static void statsAll(Case c) throws Exception {
        String topic = c.topic(1);
        String group = c.group();
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.setPersistConsumerOffsetInterval(300);
        c.collect(consumer, topic, "*", inbox);
        inbox.awaitAll(Case.sendSome(topic, "tag", 0, 10), Case.PATIENCE);
        // A client first commits 10 s after its start, whatever its interval.
        Check.within(25, "no accumulation", () -> row(mqadmin("statsAll", "-t", topic), cut(topic), cut(group)).get(2).equals("0"));
    }

    /** statsAll shows the first 64 characters of a name. */
    private static String cut(String name) {
        return name.length() > 64 ? name.substring(0, 64) : name;
    }

    private static void writePerm(Case c) throws Exception {
        String topic = c.topic(1);
        expect(mqadmin("wipeWritePerm", "-b", BROKER), "wipe write perm of broker[" + BROKER + "] in name server[" + Cluster.NAMESRV + "] OK");
        try {
            expect(mqadmin("topicRoute", "-t", topic), "\"perm\":4");
        } finally {
            expect(mqadmin("addWritePerm", "-b", BROKER), "add write perm of broker[" + BROKER + "] in name server[" + Cluster.NAMESRV + "] OK");
        }
        expect(mqadmin("topicRoute", "-t", topic), "\"perm\":6");
    }
}
