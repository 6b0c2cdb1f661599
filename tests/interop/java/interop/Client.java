package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * A process full of producers and consumers that does what it is told: one JSON object a line on standard input, answers and
 * messages received on standard output. {@code Client NAMESRV}. What it understands is in README.md; {@code examples/interop_client.rs}
 * understands the same.
 */
public final class Client {
    private final String namesrv;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, Poller> pollers = new ConcurrentHashMap<>();
    private final Map<String, String> topics = new ConcurrentHashMap<>();
    /** Orderly attempts so far, by message id. */
    private final Map<String, Integer> attempts = new ConcurrentHashMap<>();

    private Client(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) throws Exception {
        Client client = new Client(args[0]);
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> request = map(RemotingSerializable.fromJson(line, Map.class));
            workers.execute(() -> client.handle(request));
        }
        // Nobody asks any more: whoever started this has ended.
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(Object value) {
        return value == null ? Collections.emptyMap() : (Map<String, Object>) value;
    }

    private static String text(Map<String, Object> request, String key) {
        return (String) request.get(key);
    }

    private static int number(Map<String, Object> request, String key, int otherwise) {
        return request.get(key) == null ? otherwise : ((Number) request.get(key)).intValue();
    }

    private static synchronized void print(Map<String, Object> line) {
        System.out.println(RemotingSerializable.toJson(line, false));
        System.out.flush();
    }

    private void handle(Map<String, Object> request) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("id", request.get("id"));
        try {
            switch (text(request, "do")) {
                case "producer":
                    producer(request);
                    break;
                case "send":
                    answer.put("sent", send(request));
                    break;
                case "push":
                    if ("pull".equals(request.get("mode"))) {
                        pollers.put(text(request, "name"), new Poller(request));
                    } else {
                        push(request);
                    }
                    break;
                case "queues":
                    answer.put("queues", queues(text(request, "name")));
                    break;
                case "close":
                    close(text(request, "name"));
                    break;
                default:
                    throw new IllegalArgumentException("unknown request " + request);
            }
        } catch (Throwable e) {
            e.printStackTrace();
            answer.put("error", e.toString());
        }
        print(answer);
    }

    private void producer(Map<String, Object> request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(text(request, "group"));
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(text(request, "name"));
        producer.setSendMsgTimeout(20_000);
        producer.setCompressMsgBodyOverHowmuch(number(request, "compressOver", 4096));
        if (request.containsKey("compression")) {
            Versioned.compression(producer, text(request, "compression"));
        }
        producer.start();
        producers.put(text(request, "name"), producer);
    }

    private static Message message(Map<String, Object> given) {
        Message message = new Message(text(given, "topic"), bytes(text(given, "body")));
        if (given.containsKey("tags")) {
            message.setTags(text(given, "tags"));
        }
        if (given.containsKey("keys")) {
            message.setKeys(text(given, "keys"));
        }
        message.setFlag(number(given, "flag", 0));
        map(given.get("properties")).forEach((key, value) -> message.putUserProperty(key, (String) value));
        if (number(given, "delay", 0) > 0) {
            message.setDelayTimeLevel(number(given, "delay", 0));
        }
        return message;
    }

    private List<Object> send(Map<String, Object> request) throws Exception {
        DefaultMQProducer producer = producers.get(text(request, "name"));
        List<Message> messages = new ArrayList<>();
        for (Object each : (List<?>) request.get("messages")) {
            messages.add(message(map(each)));
        }
        List<Object> sent = new ArrayList<>();
        switch (text(request, "how")) {
            case "sync":
                for (Message each : messages) {
                    sent.add(result(producer.send(each)));
                }
                break;
            case "async":
                sent.addAll(sendAsync(producer, messages));
                break;
            case "oneway":
                for (Message each : messages) {
                    producer.sendOneway(each);
                }
                break;
            case "batch":
                sent.add(result(producer.send(messages)));
                break;
            case "key":
                for (Message each : messages) {
                    sent.add(result(producer.send(each, new SelectMessageQueueByHash(), text(request, "key"))));
                }
                break;
            default:
                throw new IllegalArgumentException("unknown way to send: " + request.get("how"));
        }
        return sent;
    }

    private static List<Object> sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch done = new CountDownLatch(results.length);
        for (int i = 0; i < results.length; i++) {
            int place = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[place] = result(result);
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    results[place] = Collections.singletonMap("status", error.toString());
                    done.countDown();
                }
            });
        }
        if (!done.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(done.getCount() + " callbacks are missing");
        }
        return List.of(results);
    }

    private static Map<String, Object> result(SendResult result) {
        Map<String, Object> fields = new HashMap<>();
        fields.put("status", result.getSendStatus().name());
        fields.put("id", result.getMsgId());
        fields.put("offsetId", result.getOffsetMsgId());
        fields.put("broker", result.getMessageQueue().getBrokerName());
        fields.put("queue", result.getMessageQueue().getQueueId());
        fields.put("offset", result.getQueueOffset());
        return fields;
    }

    private void push(Map<String, Object> request) throws Exception {
        String name = text(request, "name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(text(request, "group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeFromWhere("last".equals(request.get("from"))
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (request.containsKey("maxReconsume")) {
            consumer.setMaxReconsumeTimes(number(request, "maxReconsume", 16));
        }
        if ("broadcasting".equals(request.get("model"))) {
            Versioned.broadcasting(consumer);
        }
        String strategy = request.containsKey("strategy") ? text(request, "strategy") : "AVG";
        switch (strategy) {
            case "AVG":
                consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragely());
                break;
            case "AVG_BY_CIRCLE":
                consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
                break;
            case "CONSISTENT_HASH":
                consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
                break;
            default:
                throw new IllegalArgumentException("unknown strategy " + strategy);
        }
        consumer.subscribe(text(request, "topic"), request.containsKey("tags") ? text(request, "tags") : "*");
        if ("orderly".equals(request.get("mode"))) {
            consumer.setSuspendCurrentQueueTimeMillis(200);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                received(name, messages, true) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                return received(name, messages, false) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        topics.put(name, text(request, "topic"));
        consumers.put(name, consumer);
        consumer.start();
    }

    /** A pull consumer that polls without a pause. */
    private final class Poller {
        private final DefaultLitePullConsumer consumer;
        private final Thread thread;
        private volatile boolean stop;

        Poller(Map<String, Object> request) throws Exception {
            String name = text(request, "name");
            consumer = new DefaultLitePullConsumer(text(request, "group"));
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(name);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(text(request, "topic"), "*");
            consumer.start();
            thread = new Thread(() -> {
                while (!stop) {
                    received(name, consumer.poll(300), false);
                }
            });
            thread.start();
        }

        /** Commits what was polled, and leaves. */
        void close() throws Exception {
            stop = true;
            thread.join();
            consumer.commitSync();
            consumer.shutdown();
        }
    }

    /** Reports messages; false if one of them says with its property {@code fail} that so many attempts are to fail. */
    private boolean received(String name, List<MessageExt> messages, boolean orderly) {
        boolean good = true;
        for (MessageExt each : messages) {
            Map<String, Object> event = new HashMap<>();
            event.put("event", "message");
            event.put("name", name);
            event.put("topic", each.getTopic());
            event.put("broker", each.getBrokerName());
            event.put("queue", each.getQueueId());
            event.put("offset", each.getQueueOffset());
            event.put("msgId", each.getMsgId());
            event.put("body", hex(each.getBody()));
            event.put("tags", each.getTags());
            event.put("keys", each.getKeys());
            event.put("flag", each.getFlag());
            event.put("bornHost", each.getBornHostString());
            event.put("reconsumeTimes", each.getReconsumeTimes());
            event.put("properties", new TreeMap<>(each.getProperties()));
            event.put("at", System.currentTimeMillis());
            print(event);
            String fail = each.getUserProperty("fail");
            if (fail != null) {
                int before = orderly ? attempts.merge(each.getMsgId(), 1, Integer::sum) - 1 : each.getReconsumeTimes();
                good &= before >= Integer.parseInt(fail);
            }
        }
        return good;
    }

    /** The queues of the consumer's topic that are its own now, as {@code broker:queue}. */
    private List<String> queues(String name) throws Exception {
        List<String> found = new ArrayList<>();
        Poller poller = pollers.get(name);
        Set<MessageQueue> assigned = poller != null ? poller.consumer.assignment()
            : consumers.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
        for (MessageQueue each : assigned) {
            if (poller != null || each.getTopic().equals(topics.get(name))) {
                found.add(each.getBrokerName() + ":" + each.getQueueId());
            }
        }
        Collections.sort(found);
        return found;
    }

    private void close(String name) throws Exception {
        Poller poller = pollers.remove(name);
        if (poller != null) {
            poller.close();
        }
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        DefaultMQPushConsumer consumer = consumers.remove(name);
        if (consumer != null) {
            consumer.shutdown();
        }
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            text.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return text.toString();
    }
}
