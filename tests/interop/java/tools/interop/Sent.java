package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** A message that a {@link Peer} sent, and what its library answered. */
final class Sent {
    /** A producer in a peer. */
    static final class Producer {
        final Peer peer;
        final String name;
        final String group;

        Producer(Case c, Peer peer, Object... settings) throws Exception {
            this.peer = peer;
            name = Cluster.unique(peer.kind + "-producer");
            group = c.group();
            List<Object> fields = new ArrayList<>(List.of("name", name, "group", group));
            fields.addAll(List.of(settings));
            peer.ask("producer", fields.toArray());
            c.onClose(() -> {
                try {
                    peer.ask("close", "name", name);
                } catch (Exception | AssertionError ignored) {
                    // Its process ends with the last case.
                }
            });
        }

        /** Sends in one of the ways of the request {@code send}; every result must be good. */
        List<Sent> send(String how, List<Map<String, Object>> messages, Object... more) throws Exception {
            List<Object> fields = new ArrayList<>(List.of("name", name, "how", how, "messages", messages));
            fields.addAll(List.of(more));
            long before = System.currentTimeMillis();
            List<?> results = (List<?>) peer.ask("send", fields.toArray()).get("sent");
            int expected = how.equals("oneway") ? 0 : how.equals("batch") ? 1 : messages.size();
            Check.equal("results of " + how + " from " + peer.kind, expected, results.size());
            List<Sent> sent = new ArrayList<>();
            for (int i = 0; i < messages.size(); i++) {
                sent.add(new Sent(messages.get(i), how, expected == 0 ? null : (Map<?, ?>) results.get(expected == 1 ? 0 : i), i, before));
            }
            return sent;
        }

        /** So many small messages one after another. */
        List<Sent> send(String topic, int count) throws Exception {
            return send("sync", numbered(topic, count));
        }
    }

    private static final AtomicInteger NUMBER = new AtomicInteger();

    final int number;
    /** When it was about to be sent, in milliseconds. */
    final long before;
    private final Map<String, Object> message;
    /** Null if one-way. */
    final String id;
    final String offsetId;
    final String queue;
    final long offset;

    private Sent(Map<String, Object> message, String how, Map<?, ?> result, int place, long before) {
        this.message = message;
        this.before = before;
        number = Integer.parseInt((String) ((Map<?, ?>) message.get("properties")).get("number"));
        if (result == null) {
            id = offsetId = queue = null;
            offset = -1;
            return;
        }
        Check.equal("status of message " + number, "SEND_OK", result.get("status"));
        boolean batch = how.equals("batch");
        id = batch ? ((String) result.get("id")).split(",")[place] : (String) result.get("id");
        offsetId = batch ? ((String) result.get("offsetId")).split(",")[place] : (String) result.get("offsetId");
        queue = result.get("broker") + ":" + result.get("queue");
        offset = ((Number) result.get("offset")).longValue() + (batch ? place : 0);
    }

    /** Messages whose every part can be told apart; fields are added or replaced by {@code more}. */
    static List<Map<String, Object>> numbered(String topic, int count, Object... more) {
        List<Map<String, Object>> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = NUMBER.incrementAndGet();
            Map<String, Object> message = Peer.map("topic", topic, "body", hex("body \u00e9\u4e2d " + number), "tags", "tag", "keys", "key-" + number
                + " order-" + number % 7, "flag", number, "properties", Peer.map("number", Integer.toString(number), "text",
                "a b=c;\u4e2d\u6587 " + number));
            message.putAll(Peer.map(more));
            messages.add(message);
        }
        return messages;
    }

    static Map<String, Object> with(Map<String, Object> message, String property, String value) {
        @SuppressWarnings("unchecked")
        Map<String, Object> properties = (Map<String, Object>) message.get("properties");
        properties.put(property, value);
        return message;
    }

    static String hex(String text) {
        StringBuilder hex = new StringBuilder();
        for (byte each : text.getBytes(StandardCharsets.UTF_8)) {
            hex.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return hex.toString();
    }

    /** What arrived is this message at the place that its producer was told. */
    void same(Peer.Arrival got) {
        String of = " of message " + number;
        sameContent(got);
        Check.equal("topic" + of, message.get("topic"), got.text("topic"));
        if (id != null) {
            Check.equal("id" + of, id, got.text("msgId"));
        }
        // Delayed messages and retries lie elsewhere first.
        if (queue != null && !message.containsKey("delay") && got.number("reconsumeTimes") == 0) {
            Check.equal("queue" + of, queue, got.queue());
            Check.equal("offset" + of, offset, got.number("offset"));
        }
    }

    void sameContent(Peer.Arrival got) {
        String of = " of message " + number;
        String body = (String) message.get("body");
        Check.that(body.equals(got.text("body")), "body" + of + " differs: sent " + body.length() / 2 + " bytes, got " + got.text("body").length() / 2);
        Check.equal("tags" + of, message.get("tags"), got.text("tags"));
        Check.equal("keys" + of, message.get("keys"), got.text("keys"));
        Check.equal("flag" + of, message.get("flag"), got.number("flag"));
        Message wanted = new Message();
        @SuppressWarnings("unchecked")
        Map<String, String> properties = (Map<String, String>) (Map<?, ?>) message.get("properties");
        properties.forEach(wanted::putUserProperty);
        if (message.containsKey("tags")) {
            wanted.setTags((String) message.get("tags"));
        }
        if (message.containsKey("keys")) {
            wanted.setKeys((String) message.get("keys"));
        }
        Message found = new Message();
        MessageAccessor.setProperties(found, got.properties());
        // Our producer tells the key that it chose the queue by.
        MessageAccessor.clearProperty(found, "__SHARDINGKEY");
        Check.equal("properties" + of, Check.own(wanted), Check.own(found));
        if (id != null) {
            Check.equal("unique key" + of, id, got.properties().get("UNIQ_KEY"));
        }
        Check.that(got.text("bornHost").startsWith("127."), "born host" + of + " is " + got.text("bornHost"));
    }
}
