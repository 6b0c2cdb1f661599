package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/** A consumer group on one topic whose members run in {@link Peer}s, and everything that reached any of them. */
final class Group {
    /** Seconds until queues must be divided anew; a client whose first look came too early looks again after 20 s. */
    static final double RESPLIT = 30;

    /** A consumer. */
    final class Member {
        final Peer peer;
        final String name;

        private Member(Peer peer) {
            this.peer = peer;
            name = Cluster.unique(peer.kind + "-member");
        }

        /** The queues of the topic that it says are its own. */
        List<?> queues() throws Exception {
            return (List<?>) peer.ask("queues", "name", name).get("queues");
        }

        void close() throws Exception {
            members.remove(this);
            peer.ask("close", "name", name);
        }

        /** Ends its process without a word. */
        void kill() {
            members.remove(this);
            peer.kill();
        }

        List<Peer.Arrival> arrivals() {
            return Group.this.arrivals().stream().filter(each -> each.name.equals(name)).collect(Collectors.toList());
        }
    }

    final Case c;
    final String name;
    final String topic;
    final int queues;
    final List<Member> members = new ArrayList<>();
    private final List<Object> settings;
    private final List<Peer.Arrival> arrivals = new ArrayList<>();

    /** The settings are those of the request {@code push}. */
    Group(Case c, int queues, Object... settings) throws Exception {
        this(c, c.topic(queues), queues, settings);
    }

    Group(Case c, String topic, int queues, Object... settings) throws Exception {
        this.c = c;
        this.topic = topic;
        this.queues = queues;
        this.settings = Arrays.asList(settings);
        name = c.group();
        // A client that starts before its retry topic has a route would look for it again after 20 s.
        String retry = "%RETRY%" + name;
        Versioned.createTopic(Cluster.producer(), "TBW102", retry, 1);
        Cluster.awaitQueues(retry, 1);
    }

    Member join(Peer peer) throws Exception {
        Member member = new Member(peer);
        peer.listen(member.name, arrival -> {
            synchronized (arrivals) {
                arrivals.add(arrival);
            }
        });
        List<Object> fields = new ArrayList<>(List.of("name", member.name, "group", name, "topic", topic));
        fields.addAll(settings);
        members.add(member);
        peer.ask("push", fields.toArray());
        c.onClose(() -> {
            try {
                if (members.contains(member)) {
                    member.close();
                }
            } catch (Exception | AssertionError ignored) {
                // Its process ends with the last case.
            }
        });
        return member;
    }

    Member join(Peer.Kind kind) throws Exception {
        return join(Peer.of(kind));
    }

    List<Peer.Arrival> arrivals() {
        synchronized (arrivals) {
            return new ArrayList<>(arrivals);
        }
    }

    /**
     * Waits until every queue has one owner, the members have so many each, in any order, and that stays so for a moment. Without
     * sizes the moment is longer than clients wait before they look again.
     */
    Map<String, String> awaitSplit(Integer... sizes) throws Exception {
        Map<String, String> owners = new TreeMap<>();
        List<Integer> wanted = Arrays.stream(sizes).sorted().collect(Collectors.toList());
        StringBuilder last = new StringBuilder();
        double still = sizes.length == 0 ? 1.5 : 0.4;
        Map<String, String> before = new TreeMap<>();
        long[] since = {System.nanoTime()};
        try {
            Check.within(RESPLIT, "queues divided", () -> {
                Thread.sleep(80);
                if (!owners.equals(before)) {
                    before.clear();
                    before.putAll(owners);
                    since[0] = System.nanoTime();
                }
                owners.clear();
                last.setLength(0);
                List<Integer> found = new ArrayList<>();
                boolean twice = false;
                for (Member each : members) {
                    List<?> own = each.queues();
                    last.append(each.name).append(own).append(' ');
                    found.add(own.size());
                    for (Object queue : own) {
                        twice |= owners.put((String) queue, each.name) != null;
                    }
                }
                found.sort(Comparator.naturalOrder());
                boolean divided = !twice && owners.size() == queues && (wanted.isEmpty() || found.equals(wanted));
                return divided && owners.equals(before) && (System.nanoTime() - since[0]) / 1e9 > still;
            });
        } catch (AssertionError e) {
            throw new AssertionError("queues are not divided " + wanted + " within " + RESPLIT + " s: " + last);
        }
        return owners;
    }

    /** Arrivals of each number. */
    Map<Integer, List<Peer.Arrival>> byNumber() {
        Map<Integer, List<Peer.Arrival>> found = new HashMap<>();
        for (Peer.Arrival each : arrivals()) {
            found.computeIfAbsent(each.numbered(), number -> new ArrayList<>()).add(each);
        }
        return found;
    }

    /** Waits until each of the messages reached some member. */
    void awaitAll(List<Sent> sent, double seconds) throws Exception {
        TreeSet<Integer> missing = new TreeSet<>();
        try {
            Check.within(seconds, "all arrive", () -> {
                missing.clear();
                sent.forEach(each -> missing.add(each.number));
                missing.removeAll(byNumber().keySet());
                return missing.isEmpty();
            });
        } catch (AssertionError e) {
            throw new AssertionError(missing.size() + " of " + sent.size() + " messages did not arrive within " + seconds + " s: "
                + missing.stream().limit(20).collect(Collectors.toList()));
        }
    }

    /** Each of the messages arrives unchanged and once; nothing else has arrived if {@code alone}. */
    void expectOnce(List<Sent> sent, boolean alone) throws Exception {
        awaitAll(sent, Case.PATIENCE);
        Thread.sleep(300);
        Map<Integer, List<Peer.Arrival>> got = byNumber();
        for (Sent each : sent) {
            Check.equal("arrivals of message " + each.number, 1, got.get(each.number).size());
            each.same(got.get(each.number).get(0));
        }
        if (alone) {
            Check.equal("arrivals", sent.size(), arrivals().size());
        }
    }

    /** In each queue no first arrival was overtaken by a later message. */
    void expectOrder() {
        List<Peer.Arrival> all = arrivals();
        all.sort(Comparator.comparingLong((Peer.Arrival each) -> each.at).thenComparingLong(each -> each.number("offset")));
        Map<String, Long> next = new HashMap<>();
        for (Peer.Arrival each : all) {
            long offset = each.number("offset");
            long expected = next.getOrDefault(each.queue(), 0L);
            Check.that(offset <= expected, each.queue() + ": " + offset + " arrived at " + each.name + " before " + expected);
            next.put(each.queue(), Math.max(expected, offset + 1));
        }
    }
}
