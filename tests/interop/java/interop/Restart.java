package interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What outlives the broker process. All cases of one way to stop it share one restart: each says what it does before and
 * what must hold after.
 */
final class Restart {
    /** A case in two halves. */
    private abstract static class Half {
        Case c;

        abstract void before() throws Exception;

        abstract void after() throws Exception;
    }

    /** {@code action} is restart (SIGTERM, everything is kept) or kill9 (what was acknowledged is kept). */
    static void run(Suite suite, String action) throws Exception {
        Map<String, Half> halves = new java.util.LinkedHashMap<>();
        halves.put(action + "-keeps-messages", new KeepsMessages());
        halves.put(action + "-producer-goes-on", new ProducerGoesOn());
        halves.put(action + "-delayed-message", new DelayedMessage());
        halves.put(action + "-keeps-offsets", new KeepsOffsets(action.equals("restart")));
        halves.keySet().removeIf(name -> !suite.wants(name));
        if (halves.isEmpty()) {
            return;
        }
        Map<String, Throwable> problems = new java.util.HashMap<>();
        halves.forEach((name, half) -> {
            half.c = new Case(name);
            try {
                half.before();
            } catch (Throwable e) {
                problems.put(name, e);
            }
        });
        long begin = System.nanoTime();
        Throwable down = null;
        try {
            Cluster.control(action);
        } catch (Throwable e) {
            down = e;
        }
        Throwable broker = down;
        halves.forEach((name, half) -> suite.run(name, ignored -> {
            try {
                if (problems.containsKey(name)) {
                    throw new AssertionError("before the restart: " + problems.get(name), problems.get(name));
                }
                if (broker != null) {
                    throw new AssertionError("the broker did not come back: " + broker, broker);
                }
                half.after();
            } finally {
                half.c.close();
            }
        }));
        System.out.printf("    %s took %.1f s%n", action, (System.nanoTime() - begin) / 1e9);
    }

    /** Topic, route, contents and ids are the same after; new messages go behind the old ones. */
    private static final class KeepsMessages extends Half {
        private String topic;
        private final List<Message> sent = new ArrayList<>();
        private List<MessageExt> stored;

        @Override
        void before() throws Exception {
            topic = c.topic(3);
            sent.addAll(Case.sendSome(topic, "tag", 0, 60));
            Message large = Case.message(topic, "tag", 60);
            large.setBody(Producers.random(1_000_000));
            Case.send(large);
            stored = Cluster.readAll(topic);
            Check.equal("messages", 61, stored.size());
        }

        @Override
        void after() throws Exception {
            Cluster.awaitQueues(topic, 3);
            List<MessageExt> again = retrying(() -> Cluster.readAll(topic));
            Check.equal("messages", stored.size(), again.size());
            for (int i = 0; i < again.size(); i++) {
                Check.equal("id", stored.get(i).getMsgId(), again.get(i).getMsgId());
                Check.equal("physical offset", stored.get(i).getCommitLogOffset(), again.get(i).getCommitLogOffset());
                Check.equal("store time", stored.get(i).getStoreTimestamp(), again.get(i).getStoreTimestamp());
                Check.same(stored.get(i), again.get(i));
            }
            sent.addAll(retrying(() -> Case.sendSome(topic, "tag", 61, 30)));
            Check.equal("messages after the restart", 91, Cluster.readById(topic, 91).size());
        }
    }

    /** A producer with its normal retries and a consumer run on; nothing acknowledged is lost and sends resume. */
    private static final class ProducerGoesOn extends Half {
        private final List<Message> acknowledged = Collections.synchronizedList(new ArrayList<>());
        private final Case.Inbox inbox = new Case.Inbox();
        private volatile boolean stop;
        private volatile long lastAck;
        private Thread sender;
        private String topic;

        @Override
        void before() throws Exception {
            topic = c.topic(4);
            DefaultMQPushConsumer consumer = c.push(c.group());
            c.collect(consumer, topic, "*", inbox);
            Case.awaitAssigned(consumer, topic, 4);
            DefaultMQProducer producer = c.producer();
            producer.start();
            c.onClose(() -> stop = true);
            sender = new Thread(() -> {
                for (int i = 0; !stop; i++) {
                    Message message = Case.message(topic, "tag", i);
                    try {
                        Case.sent(producer.send(message));
                        acknowledged.add(message);
                        lastAck = System.currentTimeMillis();
                        Thread.sleep(2);
                    } catch (Exception | AssertionError whileTheBrokerIsDown) {
                        sleep(50);
                    }
                }
            });
            sender.start();
            Check.within(10, "300 sends before the restart", () -> acknowledged.size() >= 300);
        }

        @Override
        void after() throws Exception {
            int before = acknowledged.size();
            long back = System.currentTimeMillis();
            Check.within(20, "sends resume", () -> acknowledged.size() >= before + 300);
            System.out.printf("    %d sends were acknowledged, 300 of them within %d ms after the broker was back%n",
                acknowledged.size(), System.currentTimeMillis() - back);
            stop = true;
            sender.join();
            inbox.awaitAll(acknowledged, Case.PATIENCE);
            Map<String, MessageExt> stored = new java.util.HashMap<>();
            Cluster.readAll(topic).forEach(each -> stored.put(each.getMsgId(), each));
            for (Message each : acknowledged) {
                MessageExt got = stored.get(Case.Inbox.id(each));
                Check.that(got != null, "acknowledged but lost: " + each.getKeys());
                Check.same(each, got);
            }
        }
    }

    private static final class DelayedMessage extends Half {
        private final Case.Inbox inbox = new Case.Inbox();
        private Message message;
        private long sentAt;

        @Override
        void before() throws Exception {
            String topic = c.topic(1);
            DefaultMQPushConsumer consumer = c.push(c.group());
            c.collect(consumer, topic, "*", inbox);
            Case.awaitAssigned(consumer, topic, 1);
            message = Case.message(topic, "tag", 1);
            message.setDelayTimeLevel(3);
            sentAt = System.currentTimeMillis();
            Case.send(message);
        }

        @Override
        void after() throws Exception {
            inbox.awaitAll(List.of(message), Case.PATIENCE);
            Case.Received got = inbox.copies(message).get(0);
            Check.same(message, got.message);
            Check.that(got.atMillis - sentAt >= 10_000, "arrived " + (got.atMillis - sentAt) + " ms after it was sent");
        }
    }

    /** A group goes on where it stopped. After a kill, the last 5 s of progress may be read again, but nothing is skipped. */
    private static final class KeepsOffsets extends Half {
        private final boolean exactly;
        private String topic;
        private String group;

        KeepsOffsets(boolean exactly) {
            this.exactly = exactly;
        }

        @Override
        void before() throws Exception {
            topic = c.topic(2);
            group = c.group();
            List<Message> first = Case.sendSome(topic, "tag", 0, 100);
            Case.Inbox inbox = new Case.Inbox();
            DefaultMQPushConsumer consumer = c.push(group);
            c.collect(consumer, topic, "*", inbox);
            inbox.expectExactly(first, Case.PATIENCE);
            consumer.shutdown();
            if (!exactly) {
                // The broker writes offsets every 5 s.
                Thread.sleep(6000);
            }
        }

        @Override
        void after() throws Exception {
            List<Message> second = retrying(() -> Case.sendSome(topic, "tag", 100, 50));
            Case.Inbox inbox = new Case.Inbox();
            c.collect(c.push(group), topic, "*", inbox);
            inbox.expectExactly(second, Case.PATIENCE);
        }
    }

    interface Attempt<T> {
        T run() throws Exception;
    }

    /** The first call after a restart may meet a connection that died with the old process. */
    static <T> T retrying(Attempt<T> attempt) throws Exception {
        for (int i = 0; ; i++) {
            try {
                return attempt.run();
            } catch (Exception e) {
                if (i == 20) {
                    throw e;
                }
                sleep(500);
            }
        }
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
