package interop;

import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What clients and operators can see of some topics and groups. */
final class Snapshot {
    /** "topic queue offset": every field of the message. */
    final Map<String, String> messages = new TreeMap<>();
    /** "topic queue": first and next offset; "group topic queue": committed offset. */
    final Map<String, String> offsets = new TreeMap<>();
    /** Settings of topics and groups. */
    final Map<String, String> settings = new TreeMap<>();

    private static DefaultMQAdminExt admin;

    static synchronized DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            DefaultMQAdminExt created = Cluster.configure(new DefaultMQAdminExt());
            created.start();
            admin = created;
        }
        return admin;
    }

    static synchronized void shutdown() {
        if (admin != null) {
            admin.shutdown();
        }
    }

    static Snapshot of(Collection<String> topics, Collection<String> groups) throws Exception {
        return Restart.retrying(() -> new Snapshot(topics, groups));
    }

    private Snapshot(Collection<String> topics, Collection<String> groups) throws Exception {
        String broker = Cluster.env("BROKER");
        for (String topic : topics) {
            for (MessageQueue queue : Cluster.queues(topic)) {
                offsets.put(topic + " " + queue.getQueueId(), Cluster.reader().minOffset(queue) + " to " + Cluster.reader().maxOffset(queue));
            }
            for (MessageExt message : Cluster.readAll(topic)) {
                messages.put(String.format("%s %d %06d", topic, message.getQueueId(), message.getQueueOffset()), text(message));
            }
            TopicConfig config = admin().examineTopicConfig(broker, topic);
            settings.put(topic, config.toString());
        }
        for (String group : groups) {
            SubscriptionGroupConfig config = admin().examineSubscriptionGroupConfig(broker, group);
            settings.put(group, config.toString());
            committed(group).forEach((queue, offset) -> {
                if (topics.contains(queue.getTopic())) {
                    offsets.put(group + " " + queue.getTopic() + " " + queue.getQueueId(), "committed " + offset.getConsumerOffset());
                }
            });
        }
    }

    private static Map<MessageQueue, OffsetWrapper> committed(String group) throws Exception {
        try {
            return admin().examineConsumeStats(group).getOffsetTable();
        } catch (MQClientException e) {
            if (e.getResponseCode() == ResponseCode.TOPIC_NOT_EXIST) {
                // A group that nobody has joined has no retry topic.
                return Map.of();
            }
            throw e;
        }
    }

    /** Everything that the broker keeps of a message. */
    private static String text(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        // What the client adds.
        properties.keySet().removeAll(Set.of("MIN_OFFSET", "MAX_OFFSET"));
        return String.join(" | ", message.getMsgId(), message.getTags(), message.getKeys(), properties.toString(),
            message.getBody().length + " bytes " + Arrays.hashCode(message.getBody()), "CRC " + message.getBodyCRC(),
            "flag " + message.getFlag() + " sysFlag " + message.getSysFlag(),
            "born " + message.getBornTimestamp() + " " + message.getBornHostString(),
            "stored " + message.getStoreTimestamp() + " " + message.getStoreHost(), "at " + message.getCommitLogOffset(),
            "size " + message.getStoreSize(), "reconsumed " + message.getReconsumeTimes());
    }

    /** {@code later} shows the same. */
    void expectSame(Snapshot later) {
        same("settings", settings, later.settings);
        same("offsets", offsets, later.offsets);
        same("messages", messages, later.messages);
    }

    /** {@code later} shows the same messages at their places, and {@code more} others behind them without a gap. */
    void expectKeptIn(Snapshot later, int more) {
        messages.forEach((place, text) -> Check.equal(place, text, later.messages.get(place)));
        Check.equal("messages", messages.size() + more, later.messages.size());
        expectNoTwins(later.messages);
    }

    private static void expectNoTwins(Map<String, String> messages) {
        Map<String, String> places = new TreeMap<>();
        messages.forEach((place, text) -> {
            String other = places.put(text.substring(0, text.indexOf(' ')), place);
            Check.that(other == null, "one message at " + other + " and at " + place);
        });
    }

    private static void same(String what, Map<String, String> before, Map<String, String> after) {
        before.forEach((place, text) -> Check.equal(what + ": " + place, text, after.get(place)));
        Check.equal(what, before.keySet(), after.keySet());
    }
}
