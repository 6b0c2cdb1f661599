package interop;

import interop.Peer.Arrival;
import interop.Peer.Kind;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.ViewMessageRequestHeader;

/** {@code Clients PREFIX PATTERN}: what our client library and the Java clients send each other. */
public final class Clients {
    public static void main(String[] args) throws Exception {
        Mqadmin.prepare();
        Suite suite = new Suite(args[0], args[1]);
        MixedGroups.add(suite);
        suite.add("retry-in-mixed-group", Clients::retry);
        suite.add("orderly-suspend-rust", c -> suspend(c, Kind.RUST));
        suite.add("reset-of-offsets-while-rust-runs", Clients::reset);
        suite.add("mqadmin-sees-rust", Clients::seen);
        both(suite, "dead-letter", Clients::deadLetter);
        both(suite, "delay", Clients::delay);
        both(suite, "messages", Clients::messages);
        suite.add("messages-rust-to-java-4.9.8", c -> messages(c, Kind.RUST, Kind.JAVA_4));
        suite.add("messages-java-4.9.8-to-rust", c -> messages(c, Kind.JAVA_4, Kind.RUST));
        both(suite, "tags", Clients::tags);
        for (String each : List.of("ZLIB", "LZ4", "ZSTD")) {
            both(suite, "compression-" + each, (c, from, to) -> compression(c, from, to, each));
        }
        suite.add("compression-ZLIB-rust-to-java-4.9.8", c -> compression(c, Kind.RUST, Kind.JAVA_4, "ZLIB"));
        suite.add("compression-ZLIB-java-4.9.8-to-rust", c -> compression(c, Kind.JAVA_4, Kind.RUST, "ZLIB"));
        suite.add("queue-of-a-key", Clients::queueOfKey);
        suite.add("broadcasting", Clients::broadcasting);
        suite.run(16);
        Peer.shutdown();
        Cluster.shutdown();
        System.exit(suite.failed() == 0 ? 0 : 1);
    }

    interface Between {
        void run(Case c, Kind from, Kind to) throws Exception;
    }

    /** A case from our client to Java's, and the other way round. */
    static void both(Suite suite, String name, Between body) {
        suite.add(name + "-rust-to-java", c -> body.run(c, Kind.RUST, Kind.JAVA));
        suite.add(name + "-java-to-rust", c -> body.run(c, Kind.JAVA, Kind.RUST));
    }

    /** Every way to send: body, tags, keys, flag, properties, ids and places are what the producer gave and was told. */
    private static void messages(Case c, Kind from, Kind to) throws Exception {
        Group group = new Group(c, 4);
        Sent.Producer producer = new Sent.Producer(c, Peer.of(from));
        List<Sent> sent = new ArrayList<>(producer.send("sync", Sent.numbered(group.topic, 20)));
        group.join(to);
        sent.addAll(producer.send("async", Sent.numbered(group.topic, 60)));
        sent.addAll(producer.send("batch", Sent.numbered(group.topic, 15)));
        sent.addAll(producer.send("oneway", Sent.numbered(group.topic, 10)));
        sent.addAll(producer.send("key", Sent.numbered(group.topic, 5), "key", "order-7"));
        List<Map<String, Object>> bare = Sent.numbered(group.topic, 3);
        for (Map<String, Object> each : bare) {
            each.keySet().removeAll(List.of("tags", "keys"));
            each.put("flag", 0);
        }
        sent.addAll(producer.send("sync", bare));
        group.expectOnce(sent, true);
        for (Sent each : sent) {
            if (each.id != null) {
                // With a host of IPv4 or of IPv6.
                Check.that(each.id.matches("[0-9A-F]{32}|[0-9A-F]{56}"), "unique key " + each.id);
                Check.that(each.offsetId.matches("[0-9A-F]{32}"), "offset id " + each.offsetId);
            }
        }
    }

    private static void tags(Case c, Kind from, Kind to) throws Exception {
        Group group = new Group(c, c.topic(2), 2, "tags", "TagA || TagC");
        group.join(to);
        Sent.Producer producer = new Sent.Producer(c, Peer.of(from));
        List<Sent> wanted = new ArrayList<>();
        for (String tag : List.of("TagA", "TagB", "TagC")) {
            List<Sent> sent = producer.send("async", Sent.numbered(group.topic, 20, "tags", tag));
            if (!tag.equals("TagB")) {
                wanted.addAll(sent);
            }
        }
        group.expectOnce(wanted, true);
    }

    /** A body above the threshold is stored compressed in the way that its flags say; one below is not. */
    private static void compression(Case c, Kind from, Kind to, String type) throws Exception {
        Group group = new Group(c, 2);
        group.join(to);
        Sent.Producer producer = new Sent.Producer(c, Peer.of(from), "compression", type, "compressOver", 2000);
        StringBuilder text = new StringBuilder();
        for (int i = 0; text.length() < 20_000; i++) {
            text.append("line ").append(i).append(" \u4e2d\n");
        }
        List<Sent> large = producer.send("sync", Sent.numbered(group.topic, 6, "body", Sent.hex(text.toString())));
        large.addAll(producer.send("async", Sent.numbered(group.topic, 6, "body", Sent.hex(text.toString()))));
        List<Sent> all = new ArrayList<>(large);
        all.addAll(producer.send("sync", Sent.numbered(group.topic, 3)));
        group.expectOnce(all, true);
        int way = Map.of("LZ4", 1, "ZSTD", 2, "ZLIB", 3).get(type);
        for (Sent each : all) {
            ByteBuffer record = stored(each);
            int flags = record.getInt(SYS_FLAG);
            Check.equal("compressed", large.contains(each) ? 1 : 0, flags & 1);
            Check.equal("way of compression", large.contains(each) ? way : 0, flags >> 8 & 7);
            Check.that(record.getInt(0) < 15_000, "stored with " + record.getInt(0) + " bytes");
        }
    }

    /** Where a stored record has its flags. */
    private static final int SYS_FLAG = 36;

    /** The record as it lies in the broker. */
    private static ByteBuffer stored(Sent sent) throws Exception {
        ViewMessageRequestHeader header = new ViewMessageRequestHeader();
        header.setOffset(Long.parseLong(sent.offsetId.substring(16), 16));
        RemotingCommand answer = Cluster.reader().getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl()
            .getRemotingClient().invokeSync(Cluster.env("BROKER"), RemotingCommand.createRequestCommand(RequestCode.VIEW_MESSAGE_BY_ID, header), 5000);
        Check.equal("answer to a look at " + sent.offsetId, 0, answer.getCode());
        return ByteBuffer.wrap(answer.getBody());
    }

    private static void delay(Case c, Kind from, Kind to) throws Exception {
        Group group = new Group(c, 2);
        group.join(to);
        group.awaitSplit(2);
        Sent.Producer producer = new Sent.Producer(c, Peer.of(from));
        Map<Integer, Integer> millis = new HashMap<>();
        List<Sent> sent = new ArrayList<>();
        for (int level = 0; level < 3; level++) {
            for (Sent each : producer.send("sync", Sent.numbered(group.topic, 4, "delay", level))) {
                millis.put(each.number, level == 0 ? 0 : level == 1 ? 1000 : 5000);
                sent.add(each);
            }
        }
        group.expectOnce(sent, true);
        for (Sent each : sent) {
            int wanted = millis.get(each.number);
            long took = group.byNumber().get(each.number).get(0).at - each.before;
            Check.between("milliseconds of a message delayed by " + wanted, wanted - 20, wanted + 6000, took);
        }
    }

    /** Both libraries put the messages of a key into the same queue. */
    private static void queueOfKey(Case c) throws Exception {
        String topic = c.topic(8);
        Sent.Producer rust = new Sent.Producer(c, Peer.of(Kind.RUST));
        Sent.Producer java = new Sent.Producer(c, Peer.of(Kind.JAVA));
        for (String key : List.of("a", "order-1", "order-2", "order-3", "polygenelubricants", "\u4e2d\u6587", "\ud83d\ude00 astral")) {
            String theirs = java.send("key", Sent.numbered(topic, 1), "key", key).get(0).queue;
            for (Sent each : rust.send("key", Sent.numbered(topic, 2), "key", key)) {
                Check.equal("queue of the key \"" + key + "\"", theirs, each.queue);
            }
        }
    }

    private static void broadcasting(Case c) throws Exception {
        Group group = new Group(c, c.topic(4), 4, "model", "broadcasting");
        List<Group.Member> members = List.of(group.join(Kind.RUST), group.join(Kind.JAVA), group.join(Kind.RUST), group.join(Kind.JAVA_4));
        for (Group.Member each : members) {
            Check.within(Group.RESPLIT, each.name + " has all queues", () -> each.queues().size() == 4);
        }
        List<Sent> sent = new Sent.Producer(c, Peer.of(Kind.RUST)).send(group.topic, 20);
        sent.addAll(new Sent.Producer(c, Peer.of(Kind.JAVA)).send(group.topic, 20));
        Check.within(Case.PATIENCE, "all arrive everywhere", () -> group.arrivals().size() >= 4 * sent.size());
        Thread.sleep(300);
        for (Group.Member member : members) {
            Map<Integer, Arrival> got = new HashMap<>();
            for (Arrival each : member.arrivals()) {
                Check.that(got.put(each.numbered(), each) == null, each.numbered() + " came twice to " + member.name);
            }
            sent.forEach(each -> each.same(got.get(each.number)));
            Check.equal("arrivals at " + member.name, sent.size(), got.size());
        }
    }

    /** Messages that fail at one member come again at whichever member reads the retry topic. */
    private static void retry(Case c) throws Exception {
        Group group = new Group(c, 2);
        Group.Member rust = group.join(Kind.RUST);
        Group.Member java = group.join(Kind.JAVA);
        group.awaitSplit(1, 1);
        List<Sent> sent = new ArrayList<>();
        for (Kind kind : List.of(Kind.RUST, Kind.JAVA)) {
            List<Map<String, Object>> messages = Sent.numbered(group.topic, 8);
            messages.subList(0, 6).forEach(each -> Sent.with(each, "fail", "2"));
            sent.addAll(new Sent.Producer(c, Peer.of(kind)).send("sync", messages));
        }
        Check.within(Case.PATIENCE, "12 of 16 messages come three times", () -> group.arrivals().size() >= 12 * 3 + 4);
        Thread.sleep(1500);
        Map<Integer, List<Arrival>> got = group.byNumber();
        for (int i = 0; i < sent.size(); i++) {
            Sent each = sent.get(i);
            List<Arrival> copies = got.get(each.number);
            Check.equal("arrivals of message " + each.number, i % 8 < 6 ? 3 : 1, copies == null ? 0 : copies.size());
            for (int j = 0; j < copies.size(); j++) {
                each.same(copies.get(j));
                Check.equal("reconsume times", j, copies.get(j).number("reconsumeTimes"));
                if (j > 0) {
                    Check.equal("RETRY_TOPIC", group.topic, copies.get(j).properties().get("RETRY_TOPIC"));
                    Check.that(copies.get(j).properties().get("ORIGIN_MESSAGE_ID") != null, "ORIGIN_MESSAGE_ID is missing");
                    Check.between("milliseconds until the retry", 980, 7000, copies.get(j).at - copies.get(j - 1).at);
                }
            }
        }
        Check.that(!rust.arrivals().isEmpty() && !java.arrivals().isEmpty(), "one member received nothing");
    }

    /** A message that one library gives up is read by the other from the dead letter topic. */
    private static void deadLetter(Case c, Kind from, Kind to) throws Exception {
        Group group = new Group(c, c.topic(1), 1, "maxReconsume", 1);
        group.join(from);
        group.awaitSplit(1);
        List<Map<String, Object>> messages = Sent.numbered(group.topic, 3);
        Sent.with(messages.get(1), "fail", "99");
        List<Sent> sent = new Sent.Producer(c, Peer.of(from)).send("sync", messages);
        String topic = "%DLQ%" + group.name;
        Check.within(40, topic + " exists", () -> {
            try {
                return Cluster.reader().fetchSubscribeMessageQueues(topic).size() == 1;
            } catch (MQClientException routeMissing) {
                return false;
            }
        });
        Group dead = new Group(c, topic, 1);
        dead.join(to);
        dead.awaitAll(List.of(sent.get(1)), Case.PATIENCE);
        Thread.sleep(300);
        Check.equal("dead letters", 1, dead.arrivals().size());
        Arrival got = dead.arrivals().get(0);
        sent.get(1).sameContent(got);
        Check.equal("topic", topic, got.text("topic"));
        Check.equal("id", sent.get(1).id, got.text("msgId"));
        Check.equal("topic it came from", group.topic, got.properties().get("RETRY_TOPIC"));
        Check.equal("reconsume times", 2, got.number("reconsumeTimes"));
        Check.equal("arrivals: three messages, one of them twice", 4, group.arrivals().size());
    }

    /** A failing message of an orderly queue comes again at once, and nothing of its queue before it. */
    private static void suspend(Case c, Kind kind) throws Exception {
        Group group = new Group(c, c.topic(1), 1, "mode", "orderly");
        group.join(kind);
        List<Map<String, Object>> messages = Sent.numbered(group.topic, 6);
        Sent.with(messages.get(3), "fail", "2");
        List<Sent> sent = new Sent.Producer(c, Peer.of(Kind.JAVA)).send("sync", messages);
        group.awaitAll(sent, Case.PATIENCE);
        Check.within(5, "8 arrivals", () -> group.arrivals().size() >= 8);
        List<Integer> numbers = new ArrayList<>();
        group.arrivals().forEach(each -> numbers.add(each.numbered() - sent.get(0).number));
        Check.equal("arrivals", List.of(0, 1, 2, 3, 3, 3, 4, 5), numbers);
    }

    /** What mqadmin says of our producers and consumers, some of it asked of them through the broker. */
    private static void seen(Case c) throws Exception {
        Group group = new Group(c, c.topic(2), 2, "tags", "TagA || TagB");
        Group.Member member = group.join(Kind.RUST);
        group.awaitSplit(2);
        Sent.Producer producer = new Sent.Producer(c, Peer.of(Kind.RUST));
        List<Sent> sent = producer.send("sync", Sent.numbered(group.topic, 10, "tags", "TagB"));
        group.expectOnce(sent, true);
        String language = Cluster.APACHE ? "JAVA" : "RUST";
        String printed = Mqadmin.mqadmin("consumerConnection", "-g", group.name);
        Mqadmin.expect(printed, "@" + member.name, "127.0.0.1:", language, group.topic + " TagA || TagB", "ConsumeType: CONSUME_PASSIVELY",
            "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET");
        Matcher id = Pattern.compile("(\\S+@" + member.name + "\\S*)").matcher(printed);
        Check.that(id.find(), "no client id in " + printed);
        printed = Mqadmin.mqadmin("producerConnection", "-g", producer.group, "-t", group.topic);
        Mqadmin.expect(printed, "@" + producer.name, "127.0.0.1:", language);
        printed = Mqadmin.mqadmin("consumerStatus", "-g", group.name, "-i", id.group(1));
        Mqadmin.expect(printed, group.topic, "PROP_CONSUMER_START_TIMESTAMP", "#Consumer Offset#");
        Check.within(30, "no message is unconsumed", () -> {
            String progress = Mqadmin.mqadmin("consumerProgress", "-g", group.name);
            return progress.contains("Consume Diff Total: 0") && progress.contains(group.topic);
        });
        member.close();
        Check.within(5, "the consumer is gone", () -> Mqadmin.mqadminRaw("consumerConnection", "-g", group.name).contains("CODE: 206"));
    }

    /** The operator sends a running group back in time; it consumes again what came since. */
    private static void reset(Case c) throws Exception {
        Group group = new Group(c, 2);
        group.join(Kind.RUST);
        group.awaitSplit(2);
        Sent.Producer producer = new Sent.Producer(c, Peer.of(Kind.JAVA));
        List<Sent> before = producer.send(group.topic, 10);
        Thread.sleep(50);
        long middle = System.currentTimeMillis();
        Thread.sleep(50);
        List<Sent> after = producer.send(group.topic, 10);
        List<Sent> all = new ArrayList<>(before);
        all.addAll(after);
        group.expectOnce(all, true);
        Mqadmin.mqadmin("resetOffsetByTime", "-g", group.name, "-t", group.topic, "-s", Long.toString(middle));
        Check.within(40, "10 messages come again", () -> group.arrivals().size() >= 30);
        Thread.sleep(300);
        for (Sent each : all) {
            Check.equal("arrivals of message " + each.number, before.contains(each) ? 1 : 2, group.byNumber().get(each.number).size());
        }
    }
}
