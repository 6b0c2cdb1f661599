package interop;

import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageQueue;

/** {@code Exchange PREFIX PATTERN SCENARIO}: brokers of both kinds open one store in turn. */
public final class Exchange {
    /** Bytes of the log that a start reads again at most where the stop before was clean. */
    private static final long SCANNED_MAX = 4096;
    /** The same where it was Apache's: on a busy machine its queues may be behind its log when it stops. */
    private static final long SCANNED_OF_APACHE_MAX = 1 << 20;
    private static final String SCENARIO = System.getenv("SCENARIO");
    private static final Path WORK = Path.of(Cluster.env("WORK"));
    private static final Path STORE = WORK.resolve("stores").resolve(SCENARIO);

    private static final Broker APACHE = new Broker("apache");
    private static final Broker RINGMQ = new Broker("ringmq");
    private static final Broker RINGMQ_2_SHARDS = new Broker("ringmq-2");
    private static final Broker APACHE_ON_SHARD_1 = new Broker("apache-shard-1");

    public static void main(String[] args) throws Exception {
        Mqadmin.prepare();
        Suite suite = new Suite(args[0], args[1]);
        switch (args[2]) {
            case "adopted" -> {
                suite.run("apache-to-ringmq", Exchange::adopt);
                if (!Cluster.APACHE) {
                    suite.run("more-shards-for-an-adopted-store", Exchange::grow);
                }
            }
            case "given-back" -> suite.run("ringmq-to-apache", Exchange::giveBack);
            case "there-and-back" -> suite.run("there-and-back", Exchange::thereAndBack);
            case "killed" -> {
                suite.run("killed-apache-to-ringmq", Exchange::adoptKilled);
                suite.run("killed-ringmq-to-apache", Exchange::giveBackKilled);
                suite.run("apache-writes-after-a-killed-ringmq", Exchange::overtaken);
            }
            case "two-shards" -> {
                if (!Cluster.APACHE) {
                    suite.run("shards-to-apache", Exchange::shardsToApache);
                }
            }
            default -> throw new IllegalArgumentException(args[2]);
        }
        Snapshot.shutdown();
        Cluster.shutdown();
        System.exit(suite.failed() == 0 ? 0 : 1);
    }

    /** A node that opens the store. */
    private record Broker(String name) {
        private static Broker running;

        /** Starts it after the one before has ended; returns when, in ms since 1970. */
        long start() throws Exception {
            Check.that(running == null, running + " runs");
            Cluster.control("start", node());
            running = this;
            return System.currentTimeMillis();
        }

        void stop() throws Exception {
            running = null;
            Cluster.control("stop", node());
        }

        void kill() throws Exception {
            running = null;
            Cluster.control("kill", node());
        }

        private String node() {
            return SCENARIO + "-" + name;
        }

        private String log() throws Exception {
            return Files.readString(WORK.resolve("nodes").resolve(node()).resolve("log"));
        }
    }

    private static void body(Case c, Suite.Body body) throws Exception {
        try {
            body.run(c);
        } finally {
            // While there is a broker to say goodbye to.
            c.close();
            if (Broker.running != null) {
                Broker.running.stop();
            }
        }
    }

    /** What RingMQ says of its last start: one line a shard. */
    private static void expectOpened(Broker broker, String before, String stop, boolean readsNothing) throws Exception {
        if (Cluster.APACHE) {
            return;
        }
        List<String> lines = broker.log().lines().filter(line -> line.contains("store open")).toList();
        String line = lines.get(lines.size() - 1);
        Mqadmin.expect(line, "left_by=\"" + before + "\"", "after=\"" + stop + "\"");
        Matcher scanned = Pattern.compile("scanned_bytes=(\\d+)").matcher(line);
        Check.that(scanned.find(), "no scanned_bytes in: " + line);
        if (readsNothing) {
            long most = before.equals("RingMQ") ? SCANNED_MAX : SCANNED_OF_APACHE_MAX;
            Check.that(Long.parseLong(scanned.group(1)) <= most, "the log was read again: " + line);
        }
    }

    private static Contents adopted;

    private static void adopt(Case c) throws Exception {
        body(c, Exchange::adoptIt);
    }

    private static void adoptIt(Case c) throws Exception {
        APACHE.start();
        Contents contents = new Contents(c);
        contents.write();
        Snapshot before = contents.snapshot();
        APACHE.stop();
        long up = RINGMQ.start();
        expectOpened(RINGMQ, "another broker", "a clean stop", true);
        before.expectSame(contents.snapshot());
        int more = contents.append();
        before.expectKeptIn(contents.snapshot(), more);
        contents.expectProgress();
        contents.expectRetried();
        contents.expectDelayed(up);
        adopted = contents;
    }

    /** Queues stay in their log; those of new topics are spread over all. */
    private static void grow(Case c) throws Exception {
        Check.that(adopted != null, "there is no adopted store");
        body(c, ignored -> {
            RINGMQ.start();
            Snapshot before = adopted.snapshot();
            RINGMQ.stop();
            RINGMQ_2_SHARDS.start();
            before.expectSame(adopted.snapshot());
            int more = adopted.append();
            Snapshot after = adopted.snapshot();
            before.expectKeptIn(after, more);
            after.messages.forEach((place, text) -> Check.equal("log of " + place, 0, shardOf(text)));
            String topic = c.topic(4);
            Case.sendSome(topic, "tag", 0, 40);
            Snapshot spread = Snapshot.of(List.of(topic), List.of());
            Check.equal("messages", 40, spread.messages.size());
            Check.equal("messages in the second log", 20, spread.messages.values().stream().filter(text -> shardOf(text) == 1).count());
        });
    }

    private static final Pattern PLACE = Pattern.compile(" \\| at (\\d+) \\| ");

    private static long shardOf(String text) {
        Matcher matcher = PLACE.matcher(text);
        Check.that(matcher.find(), text);
        return Long.parseLong(matcher.group(1)) >> 48;
    }

    private static void giveBack(Case c) throws Exception {
        body(c, Exchange::giveItBack);
    }

    private static void giveItBack(Case c) throws Exception {
        RINGMQ.start();
        Contents contents = new Contents(c);
        contents.write();
        Snapshot before = contents.snapshot();
        List<String> byRingmq = mqadminViews(contents);
        RINGMQ.stop();
        long up = APACHE.start();
        before.expectSame(contents.snapshot());
        Check.equal("what mqadmin shows", byRingmq, mqadminViews(contents));
        int more = contents.append();
        before.expectKeptIn(contents.snapshot(), more);
        contents.expectProgress();
        contents.expectRetried();
        contents.expectDelayed(up);
    }

    /** What the operator's tool prints of the store, without what depends on the moment. */
    private static List<String> mqadminViews(Contents contents) {
        String id = contents.lastSingle.getOffsetMsgId();
        String queue = Integer.toString(contents.lastSingle.getMessageQueue().getQueueId());
        String offset = Long.toString(contents.lastSingle.getQueueOffset());
        List<String> views = new ArrayList<>();
        String group = contents.groups.get(0);
        for (String[] command : new String[][] {
            {"topicStatus", "-t", contents.singles},
            {"queryMsgByOffset", "-t", contents.singles, "-b", "broker-a", "-i", queue, "-o", offset},
            {"queryMsgById", "-t", contents.singles, "-i", id},
            {"consumerProgress", "-g", group},
        }) {
            String printed = Mqadmin.mqadmin(command);
            // Where a tool keeps the body it shows.
            views.add(command[0] + ": " + printed.replaceAll("(?m)^(Message Body Path|OffsetID|.*MIN_OFFSET).*$", "").replaceAll("Consume TPS: .*", ""));
        }
        Mqadmin.expect(views.get(0), "broker-a 0 0 30");
        Mqadmin.expect(views.get(1), Integer.toString(119));
        Mqadmin.expect(views.get(2), contents.singles, "key-119");
        Mqadmin.expect(views.get(3), "Consume Diff Total: 45");
        return views;
    }

    private static void thereAndBack(Case c) throws Exception {
        body(c, ignored -> {
            APACHE.start();
            Load load = new Load(c);
            Snapshot before = null;
            for (Broker broker : List.of(APACHE, RINGMQ, APACHE, RINGMQ)) {
                if (Broker.running == null) {
                    broker.start();
                    load.verify();
                    before.expectSame(Snapshot.of(List.of(load.topic), List.of()));
                    if (broker == RINGMQ) {
                        expectOpened(broker, "another broker", "a clean stop", true);
                    }
                }
                // More than a queue's file holds.
                load.run(1500, () -> { });
                load.verify();
                before = Snapshot.of(List.of(load.topic), List.of());
                Check.equal("messages", load.acknowledged(), before.messages.size());
                broker.stop();
            }
            RINGMQ.start();
            expectOpened(RINGMQ, "RingMQ", "a clean stop", true);
            before.expectSame(Snapshot.of(List.of(load.topic), List.of()));
        });
    }

    private static Load killed;

    private static void adoptKilled(Case c) throws Exception {
        body(c, ignored -> {
            APACHE.start();
            Load load = new Load(c);
            load.run(3000, APACHE::kill);
            Check.that(Files.exists(STORE.resolve("abort")), "no abort file");
            RINGMQ.start();
            expectOpened(RINGMQ, "another broker", "a crash", false);
            load.verify();
            load.run(500, () -> { });
            load.verify();
            killed = load;
        });
    }

    /** RingMQ is killed, starts again and stops cleanly before Apache opens the store. */
    private static void giveBackKilled(Case c) throws Exception {
        body(c, ignored -> {
            RINGMQ.start();
            Load load = killed == null ? new Load(c) : killed;
            load.run(1500, RINGMQ::kill);
            RINGMQ.start();
            expectOpened(RINGMQ, "RingMQ", "a crash", false);
            load.verify();
            RINGMQ.stop();
            APACHE.start();
            load.verify();
            load.run(500, () -> { });
            load.verify();
        });
    }

    /** What the killed broker had not yet written to the log is no reason to write over what another one did since. */
    private static void overtaken(Case c) throws Exception {
        body(c, ignored -> {
            RINGMQ.start();
            Load lost = new Load(c);
            Load load = new Load(c);
            load.run(200, () -> { });
            lost.run(500, RINGMQ::kill);
            APACHE.start();
            load.verify();
            load.run(500, () -> { });
            Snapshot before = Snapshot.of(List.of(load.topic), List.of());
            APACHE.stop();
            RINGMQ.start();
            load.verify();
            before.expectSame(Snapshot.of(List.of(load.topic), List.of()));
            // Of what was killed with its broker some may be gone, but there is no gap.
            Restart.retrying(() -> Cluster.readAll(lost.topic));
        });
    }

    private static void shardsToApache(Case c) throws Exception {
        body(c, Exchange::eachShardToApache);
    }

    private static void eachShardToApache(Case c) throws Exception {
        RINGMQ_2_SHARDS.start();
        Load load = new Load(c);
        String single = c.topic(1);
        Case.sendSome(single, "tag", 0, 50);
        load.run(1500, () -> { });
        List<String> topics = List.of(load.topic, single);
        Snapshot whole = Snapshot.of(topics, List.of());
        RINGMQ_2_SHARDS.stop();
        // A shard's folder is a store; the tables are those of the whole.
        Path config = Files.createDirectories(STORE.resolve("shard-1/config"));
        try (Stream<Path> files = Files.list(STORE.resolve("config"))) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                Files.copy(file, config.resolve(file.getFileName()), new CopyOption[] {StandardCopyOption.REPLACE_EXISTING});
            }
        }
        Map<String, String> added = new TreeMap<>();
        int messages = 0;
        for (Broker broker : List.of(APACHE, APACHE_ON_SHARD_1)) {
            int shard = broker == APACHE ? 0 : 1;
            Map<String, String> mine = new TreeMap<>(whole.messages);
            mine.values().removeIf(text -> shardOf(text) != shard);
            broker.start();
            Snapshot shown = Snapshot.of(topics, List.of());
            Check.equal("places in log " + shard, mine.keySet(), shown.messages.keySet());
            Check.equal("messages in log " + shard, mine, shown.messages);
            messages += mine.size();
            // One more behind each queue of this log.
            for (MessageQueue queue : Cluster.queues(load.topic)) {
                long end = Cluster.reader().maxOffset(queue);
                if (end > 0) {
                    Case.sent(Cluster.producer().send(Case.message(load.topic, "tag", 1_000_000 + queue.getQueueId()), queue));
                    added.put(queue.getQueueId() + " " + end, "");
                }
            }
            broker.stop();
        }
        Check.equal("messages of both logs", whole.messages.size(), messages);
        Check.equal("queues with one more", 4, added.size());
        RINGMQ_2_SHARDS.start();
        expectOpened(RINGMQ_2_SHARDS, "another broker", "a clean stop", true);
        load.verify();
        whole.expectKeptIn(Snapshot.of(topics, List.of()), 4);
    }
}
