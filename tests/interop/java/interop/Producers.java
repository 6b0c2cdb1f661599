package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends of every kind; what was stored is read back and compared. */
final class Producers {
    static final int MAX_BODY = 4 * 1024 * 1024;
    private static final int MESSAGE_ILLEGAL = 13;
    private static final int TOPIC_NOT_EXIST = 17;
    private static final int NO_MESSAGE = 208;

    static void add(Suite suite) {
        suite.add("send-sync", Producers::sync);
        suite.add("send-async", Producers::async);
        suite.add("send-oneway", Producers::oneway);
        suite.add("send-batch", Producers::batch);
        suite.add("send-queue-selector", Producers::queueSelector);
        suite.add("send-empty-body", Producers::emptyBody);
        suite.add("send-largest-body", Producers::largestBody);
        suite.add("send-too-large", Producers::tooLarge);
        suite.add("send-many-properties", Producers::manyProperties);
        for (String compression : Versioned.COMPRESSIONS) {
            suite.add("send-compressed-" + compression.toLowerCase(), c -> compressed(c, compression));
        }
        suite.add("topic-auto-created", Producers::topicAutoCreated);
        suite.add("topic-auto-creation-off", Producers::topicAutoCreationOff);
        suite.add("message-by-offset-id", Producers::messageByOffsetId);
        suite.add("messages-by-key", Producers::messagesByKey);
    }

    private static void sync(Case c) throws Exception {
        String topic = c.topic(4);
        Map<String, Message> sent = new HashMap<>();
        Map<String, SendResult> results = new HashMap<>();
        Map<Integer, Long> next = new HashMap<>();
        for (int i = 0; i < 100; i++) {
            Message message = Case.message(topic, "tag-" + i % 3, i);
            SendResult result = Case.send(message);
            int queue = result.getMessageQueue().getQueueId();
            Check.equal("offset in queue " + queue, next.getOrDefault(queue, 0L), result.getQueueOffset());
            next.put(queue, result.getQueueOffset() + 1);
            sent.put(result.getMsgId(), message);
            results.put(result.getMsgId(), result);
        }
        Check.equal("queues used", 4, next.size());
        Map<String, MessageExt> stored = Cluster.readById(topic, 100);
        for (Map.Entry<String, Message> each : sent.entrySet()) {
            MessageExt got = stored.get(each.getKey());
            SendResult result = results.get(each.getKey());
            Check.that(got != null, each.getKey() + " is not stored");
            Check.same(each.getValue(), got);
            Check.equal("keys", each.getValue().getKeys(), got.getKeys());
            Check.equal("tag", each.getValue().getTags(), got.getTags());
            Check.equal("queue", result.getMessageQueue().getQueueId(), got.getQueueId());
            Check.equal("queue offset", result.getQueueOffset(), got.getQueueOffset());
            Check.equal("physical offset in the id", MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getOffset(), got.getCommitLogOffset());
            Check.equal("reconsume times", 0, got.getReconsumeTimes());
        }
    }

    private static void async(Case c) throws Exception {
        String topic = c.topic(4);
        int count = 500;
        CountDownLatch answered = new CountDownLatch(count);
        Map<String, Message> sent = new ConcurrentHashMap<>();
        Map<Integer, Throwable> failures = new ConcurrentHashMap<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Message message = Case.message(topic, "tag", i);
            Cluster.producer().send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.put(result.getMsgId(), message);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failures.put(number, e);
                    answered.countDown();
                }
            });
        }
        Check.that(answered.await(20, TimeUnit.SECONDS), answered.getCount() + " sends were not answered");
        Check.that(failures.isEmpty(), "sends failed: " + failures);
        compare(sent, Cluster.readById(topic, count));
    }

    private static void oneway(Case c) throws Exception {
        String topic = c.topic(4);
        Map<String, Message> sent = new HashMap<>();
        for (int i = 0; i < 100; i++) {
            Message message = Case.message(topic, "tag", i);
            Cluster.producer().sendOneway(message);
            sent.put(Case.Inbox.id(message), message);
        }
        compare(sent, Cluster.readById(topic, 100));
    }

    private static void batch(Case c) throws Exception {
        String topic = c.topic(2);
        List<MessageQueue> queues = Cluster.queues(topic);
        Map<String, Message> sent = new HashMap<>();
        int number = 0;
        for (int round = 0; round < 4; round++) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < 64; i++) {
                messages.add(Case.message(topic, "tag-" + i % 2, number++));
            }
            MessageQueue queue = queues.get(round % 2);
            SendResult result = Case.sent(Cluster.producer().send(messages, queue));
            Check.equal("offset of the batch's first message", round / 2 * 64L, result.getQueueOffset());
            Check.equal("ids answered", 64, result.getMsgId().split(",").length);
            Check.equal("offset ids answered", 64, result.getOffsetMsgId().split(",").length);
            Check.equal("ids", String.join(",", messages.stream().map(Case.Inbox::id).toArray(String[]::new)), result.getMsgId());
            messages.forEach(each -> sent.put(Case.Inbox.id(each), each));
        }
        compare(sent, Cluster.readById(topic, 256));
        int last = -1;
        for (MessageExt each : Cluster.readAll(topic)) {
            if (each.getQueueId() == 0) {
                int i = Integer.parseInt(each.getUserProperty("number"));
                Check.that(i > last, "batch order in queue 0: " + i + " after " + last);
                last = i;
            }
        }
    }

    private static void queueSelector(Case c) throws Exception {
        String topic = c.topic(4);
        for (int i = 0; i < 80; i++) {
            int order = i % 8;
            Message message = Case.message(topic, "tag", i);
            SendResult result = Case.sent(Cluster.producer().send(message,
                (queues, sent, arg) -> queues.stream().filter(q -> q.getQueueId() == (Integer) arg % 4).findFirst().get(), order));
            Check.equal("queue chosen", order % 4, result.getMessageQueue().getQueueId());
        }
        Map<Integer, Integer> last = new HashMap<>();
        List<MessageExt> stored = Cluster.readAll(topic);
        Check.equal("messages", 80, stored.size());
        for (MessageExt each : stored) {
            int i = Integer.parseInt(each.getUserProperty("number"));
            Check.equal("queue of order " + i % 8, i % 4, each.getQueueId());
            Check.that(i > last.getOrDefault(each.getQueueId(), -1), "order in queue " + each.getQueueId());
            last.put(each.getQueueId(), i);
        }
    }

    /** The client refuses an empty body before anything is sent. */
    private static void emptyBody(Case c) throws Exception {
        String topic = c.topic(1);
        MQClientException refused = Check.fails(MQClientException.class, "send of an empty body",
            () -> Cluster.producer().send(new Message(topic, new byte[0])));
        Check.equal("code", MESSAGE_ILLEGAL, refused.getResponseCode());
        Check.equal("stored", 0, Cluster.stored(topic));
        Case.send(new Message(topic, new byte[] {0}));
        Check.equal("body", 1, Cluster.readById(topic, 1).values().iterator().next().getBody().length);
    }

    private static void largestBody(Case c) throws Exception {
        String topic = c.topic(1);
        DefaultMQProducer producer = c.producer();
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        Map<String, Message> sent = new HashMap<>();
        for (int size : new int[] {MAX_BODY, MAX_BODY - 1, 4097, 4096, 1}) {
            Message message = new Message(topic, random(size));
            sent.put(Case.sent(producer.send(message)).getMsgId(), message);
        }
        compare(sent, Cluster.readById(topic, sent.size()));
    }

    /** The broker's own limit, met by a client whose limit is higher; what comes after is stored as ever. */
    private static void tooLarge(Case c) throws Exception {
        String topic = c.topic(1);
        DefaultMQProducer producer = c.producer();
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        MQClientException refused = Check.fails(MQClientException.class, "send over the client's limit",
            () -> producer.send(new Message(topic, new byte[MAX_BODY + 1])));
        Check.equal("code", MESSAGE_ILLEGAL, refused.getResponseCode());
        producer.setMaxMessageSize(2 * MAX_BODY);
        MQBrokerException rejected = Check.fails(MQBrokerException.class, "send over the broker's limit",
            () -> producer.send(new Message(topic, new byte[MAX_BODY + 1])));
        Check.equal("code", MESSAGE_ILLEGAL, rejected.getResponseCode());
        Check.equal("stored", 0, Cluster.stored(topic));
        Message good = Case.message(topic, "tag", 1);
        Check.equal("offset after a refused message", 0, Case.sent(producer.send(good)).getQueueOffset());
        Check.same(good, Cluster.readById(topic, 1).get(Case.Inbox.id(good)));
    }

    /** 30,000 bytes of properties pass; more than 32,767 do not. */
    private static void manyProperties(Case c) throws Exception {
        String topic = c.topic(1);
        Message large = Case.message(topic, "tag", 1);
        for (int i = 0; i < 29; i++) {
            large.putUserProperty("filler" + i, "x".repeat(1000));
        }
        Case.send(large);
        Message over = Case.message(topic, "tag", 2);
        for (int i = 0; i < 33; i++) {
            over.putUserProperty("filler" + i, "x".repeat(1000));
        }
        MQBrokerException rejected = Check.fails(MQBrokerException.class, "send of 33 kB of properties", () -> Cluster.producer().send(over));
        Check.equal("code", MESSAGE_ILLEGAL, rejected.getResponseCode());
        Check.same(large, Cluster.readById(topic, 1).get(Case.Inbox.id(large)));
    }

    /** The broker stores the compressed bytes; the reader gets the original body. */
    private static void compressed(Case c, String compression) throws Exception {
        String topic = c.topic(1);
        DefaultMQProducer producer = c.producer();
        Versioned.compression(producer, compression);
        producer.start();
        Map<String, Message> sent = new HashMap<>();
        for (int size : new int[] {5_000, 200_000, 3_000_000}) {
            byte[] body = new byte[size];
            for (int i = 0; i < size; i++) {
                body[i] = (byte) ("0123456789 text ".charAt(i / 7 % 16));
            }
            Message message = Case.message(topic, "tag", size);
            message.setBody(body);
            Message original = Case.message(topic, "tag", size);
            original.setBody(body);
            sent.put(Case.sent(producer.send(message)).getMsgId(), original);
        }
        Map<String, MessageExt> stored = Cluster.readById(topic, sent.size());
        compare(sent, stored);
        for (MessageExt each : stored.values()) {
            Check.that(each.getStoreSize() < each.getBody().length, "stored size " + each.getStoreSize() + " of a body of " + each.getBody().length);
        }
    }

    private static void topicAutoCreated(Case c) throws Exception {
        String topic = Cluster.unique("auto-created");
        Message first = Case.message(topic, "tag", 0);
        Case.send(first);
        // The route is there before the answer to the send is.
        Check.equal("queues: the client's 4 of the template's 8", 4, Cluster.queues(topic).size());
        Message second = Case.message(topic, "tag", 1);
        Case.send(second);
        Map<String, MessageExt> stored = Cluster.readById(topic, 2);
        Check.same(first, stored.get(Case.Inbox.id(first)));
        Check.same(second, stored.get(Case.Inbox.id(second)));
    }

    private static void topicAutoCreationOff(Case c) throws Exception {
        DefaultMQProducer producer = c.producer();
        producer.setNamesrvAddr(Cluster.STRICT_NAMESRV);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        String missing = Cluster.unique("not-created");
        MQClientException refused = Check.fails(MQClientException.class, "send to a topic that nobody created",
            () -> producer.send(Case.message(missing, "tag", 1)));
        Check.that(refused.getMessage().contains("No route info of this topic"), "refused with: " + refused.getMessage());

        String created = Cluster.unique("created");
        Versioned.createTopic(producer, "SELF_TEST_TOPIC", created, 2);
        Check.within(5, "route of " + created, () -> {
            try {
                return producer.fetchPublishMessageQueues(created).size() == 2;
            } catch (MQClientException routeMissing) {
                return false;
            }
        });
        SendResult result = Case.sent(producer.send(Case.message(created, "tag", 1)));

        MessageQueue elsewhere = new MessageQueue(missing, result.getMessageQueue().getBrokerName(), 0);
        MQBrokerException rejected = Check.fails(MQBrokerException.class, "send past the missing route",
            () -> producer.send(Case.message(missing, "tag", 1), elsewhere));
        Check.equal("code", TOPIC_NOT_EXIST, rejected.getResponseCode());
    }

    private static void messagesByKey(Case c) throws Exception {
        String topic = c.topic(4);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 20);
        DefaultMQProducer producer = Cluster.producer();
        long now = System.currentTimeMillis();
        List<MessageExt> one = producer.queryMessage(topic, "key-7", 32, now - 60_000, now + 60_000).getMessageList();
        Check.equal("messages with key-7", 1, one.size());
        Check.equal("number", "7", one.get(0).getUserProperty("number"));
        // 0, 7 and 14 of each order.
        List<MessageExt> order = producer.queryMessage(topic, "order-0", 32, now - 60_000, now + 60_000).getMessageList();
        Check.equal("messages of order-0", 3, order.size());
        Check.equal("at most", 2, producer.queryMessage(topic, "order-0", 2, now - 60_000, now + 60_000).getMessageList().size());
        MessageExt unique = producer.viewMessage(topic, Case.Inbox.id(sent.get(9)));
        Check.equal("number", "9", unique.getUserProperty("number"));
        MQClientException none = Check.fails(MQClientException.class, "a key that is not there",
            () -> producer.queryMessage(topic, "key-99", 32, now - 60_000, now + 60_000));
        Check.equal("code", NO_MESSAGE, none.getResponseCode());
    }

    private static void messageByOffsetId(Case c) throws Exception {
        String topic = c.topic(1);
        Message message = Case.message(topic, "tag", 1);
        SendResult result = Case.send(message);
        MessageExt got = Versioned.viewMessage(Cluster.reader(), topic, result.getOffsetMsgId());
        Check.same(message, got);
        Check.equal("queue offset", result.getQueueOffset(), got.getQueueOffset());
    }

    private static void compare(Map<String, Message> sent, Map<String, MessageExt> stored) {
        Check.equal("ids", sent.keySet().stream().sorted().toList(), stored.keySet().stream().sorted().toList());
        sent.forEach((id, message) -> Check.same(message, stored.get(id)));
    }

    static byte[] random(int size) {
        byte[] bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        return bytes;
    }
}
