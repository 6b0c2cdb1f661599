package interop;

import interop.Peer.Arrival;
import interop.Peer.Kind;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Consumers of our library and Java's in one group: they divide the queues together, whoever comes, goes or is killed. */
final class MixedGroups {
    private static final int QUEUES = 8;

    /** Cases that wait long come first. */
    static void add(Suite suite) {
        suite.add("group-orderly-kill-java", c -> orderlyKill(c, Kind.JAVA, Kind.RUST));
        suite.add("group-orderly-kill-rust", c -> orderlyKill(c, Kind.RUST, Kind.JAVA));
        suite.add("group-orderly", MixedGroups::orderly);
        suite.add("group-concurrent-AVG", MixedGroups::concurrent);
        for (String each : List.of("CONSISTENT_HASH", "AVG_BY_CIRCLE")) {
            suite.add("group-concurrent-" + each, c -> strategy(c, each));
        }
        suite.add("group-pull", MixedGroups::pull);
        Clients.both(suite, "offsets-pull", (c, from, to) -> handOver(c, from, to, "pull"));
        Clients.both(suite, "offsets-concurrent", (c, from, to) -> handOver(c, from, to, "concurrent"));
        Clients.both(suite, "offsets-orderly", (c, from, to) -> handOver(c, from, to, "orderly"));
    }

    /** Both libraries send to the group's topic, so that every queue has messages. */
    private static final class Source {
        private final Group group;
        private final List<Sent.Producer> producers;
        private final List<Sent> all = Collections.synchronizedList(new ArrayList<>());

        Source(Group group) throws Exception {
            this.group = group;
            producers = List.of(new Sent.Producer(group.c, Peer.of(Kind.RUST)), new Sent.Producer(group.c, Peer.of(Kind.JAVA)));
        }

        List<Sent> send(int each) throws Exception {
            List<Sent> sent = new ArrayList<>();
            for (Sent.Producer producer : producers) {
                sent.addAll(producer.send(group.topic, each));
            }
            all.addAll(sent);
            return sent;
        }

        interface Change {
            void run() throws Exception;
        }

        /** Changes the group while messages flow; they must all arrive, some perhaps twice. */
        void during(Change change) throws Exception {
            List<Sent> sent = new ArrayList<>();
            boolean[] stop = new boolean[1];
            Throwable[] problem = new Throwable[1];
            Thread flow = new Thread(() -> {
                try {
                    do {
                        sent.addAll(send(8));
                        Thread.sleep(60);
                    } while (!stop[0]);
                } catch (Throwable e) {
                    problem[0] = e;
                }
            });
            flow.start();
            try {
                change.run();
            } finally {
                stop[0] = true;
                flow.join();
            }
            if (problem[0] != null) {
                throw new AssertionError("a producer failed while the group changed", problem[0]);
            }
            group.awaitAll(sent, Case.PATIENCE);
        }

        /** While nothing changes each message is consumed once, by the owner of its queue, and every queue has messages. */
        void steady(Map<String, String> owners) throws Exception {
            List<Sent> sent = send(4 * QUEUES);
            group.expectOnce(sent, false);
            Set<String> queues = new HashSet<>();
            Map<Integer, List<Arrival>> got = group.byNumber();
            for (Sent each : sent) {
                Arrival arrival = got.get(each.number).get(0);
                Check.equal("consumer of " + arrival.queue(), owners.get(arrival.queue()), arrival.name);
                queues.add(arrival.queue());
            }
            Check.equal("queues with messages", owners.keySet(), queues);
        }
    }

    private static void concurrent(Case c) throws Exception {
        Group group = new Group(c, QUEUES);
        Source source = new Source(group);
        Group.Member first = group.join(Kind.RUST);
        source.steady(group.awaitSplit(8));
        Group.Member java = changed(source, () -> group.join(Kind.JAVA), 4, 4);
        Group.Member second = changed(source, () -> group.join(Peer.start(c, Kind.RUST)), 2, 3, 3);
        Group.Member old = changed(source, () -> group.join(Peer.start(c, Kind.JAVA_4)), 2, 2, 2, 2);
        changed(source, () -> gone(second::kill), 2, 3, 3);
        changed(source, () -> gone(old::kill), 4, 4);
        changed(source, () -> gone(java::close), 8);
        Group.Member again = changed(source, () -> group.join(Kind.JAVA), 4, 4);
        changed(source, () -> gone(first::close), 8);
        Check.equal("members left", List.of(again), group.members);
        group.awaitAll(source.all, Case.PATIENCE);
    }

    private interface Move {
        Group.Member run() throws Exception;
    }

    private static Group.Member gone(Source.Change change) throws Exception {
        change.run();
        return null;
    }

    /** One change of the group under load, then a look at it at rest. */
    private static Group.Member changed(Source source, Move move, Integer... sizes) throws Exception {
        Group.Member[] member = new Group.Member[1];
        source.during(() -> {
            member[0] = move.run();
            source.group.awaitSplit(sizes);
        });
        source.steady(source.group.awaitSplit(sizes));
        return member[0];
    }

    /** The libraries agree on who gets which queue, whatever the strategy. */
    private static void strategy(Case c, String strategy) throws Exception {
        Group group = new Group(c, c.topic(QUEUES), QUEUES, "strategy", strategy);
        Source source = new Source(group);
        group.join(Kind.RUST);
        Group.Member java = group.join(Kind.JAVA);
        source.steady(group.awaitSplit());
        changed(source, () -> group.join(Kind.RUST));
        changed(source, () -> group.join(Kind.JAVA_4));
        changed(source, () -> gone(java::close));
    }

    private static void pull(Case c) throws Exception {
        Group group = new Group(c, c.topic(QUEUES), QUEUES, "mode", "pull");
        Source source = new Source(group);
        Group.Member rust = group.join(Kind.RUST);
        source.steady(group.awaitSplit(8));
        changed(source, () -> group.join(Kind.JAVA), 4, 4);
        changed(source, () -> gone(rust::close), 8);
        changed(source, () -> group.join(Kind.RUST), 4, 4);
    }

    private static void orderly(Case c) throws Exception {
        Group group = new Group(c, c.topic(QUEUES), QUEUES, "mode", "orderly");
        Source source = new Source(group);
        Group.Member rust = group.join(Kind.RUST);
        source.steady(group.awaitSplit(8));
        Group.Member java = changed(source, () -> group.join(Kind.JAVA), 4, 4);
        changed(source, () -> gone(rust::close), 8);
        changed(source, () -> group.join(Kind.RUST), 4, 4);
        changed(source, () -> gone(java::close), 8);
        group.awaitAll(source.all, Case.PATIENCE);
        group.expectOrder();
    }

    /** The locks of a killed consumer run out after a minute; then its queues go on at another, in their order. */
    private static void orderlyKill(Case c, Kind killed, Kind heir) throws Exception {
        Group group = new Group(c, c.topic(QUEUES), QUEUES, "mode", "orderly");
        Source source = new Source(group);
        group.join(heir);
        Group.Member dies = group.join(Peer.start(c, killed));
        source.steady(group.awaitSplit(4, 4));
        dies.kill();
        List<Sent> sent = source.send(2 * QUEUES);
        group.awaitAll(sent, 100);
        group.awaitSplit(8);
        group.expectOrder();
    }

    /** Where one library's consumer stopped the other's goes on: nothing twice, nothing left out, and back again. */
    private static void handOver(Case c, Kind from, Kind to, String mode) throws Exception {
        Group group = new Group(c, c.topic(4), 4, "mode", mode);
        Source source = new Source(group);
        for (Kind each : List.of(from, to, from)) {
            source.send(20);
            Group.Member member = group.join(each);
            group.expectOnce(source.all, true);
            source.send(20);
            group.expectOnce(source.all, true);
            member.close();
        }
        if (mode.equals("orderly")) {
            group.expectOrder();
        }
    }
}
