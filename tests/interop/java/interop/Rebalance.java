package interop;

import java.util.List;
import java.util.Collections;
import java.util.ArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;

/** Two consumers that join and leave one group while messages flow. */
final class Rebalance {
    /** How long the queues may take to be divided anew; the clients' own timer alone would take up to 20 s. */
    private static final double RESPLIT_SECONDS = 2;

    static void add(Suite suite) {
        suite.add("rebalance-concurrent", Rebalance::concurrent);
        suite.add("rebalance-orderly", Rebalance::orderly);
    }

    /** Sends 200 messages a second until it is stopped. */
    private static final class Flow {
        final List<Message> sent = Collections.synchronizedList(new ArrayList<>());
        private final AtomicBoolean stop = new AtomicBoolean();
        private final Thread thread;
        private volatile Exception failure;

        Flow(String topic) {
            thread = new Thread(() -> {
                try {
                    for (int i = 0; !stop.get(); i += 8) {
                        sent.addAll(Case.sendSome(topic, "tag", i, 8));
                        Thread.sleep(40);
                    }
                } catch (Exception e) {
                    failure = e;
                }
            });
            thread.start();
        }

        void stop() throws Exception {
            stop.set(true);
            thread.join();
            if (failure != null) {
                throw failure;
            }
        }
    }

    private static void concurrent(Case c) throws Exception {
        String topic = c.topic(8);
        String group = c.group();
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer stays = c.push(group);
        c.collect(stays, topic, "*", inbox);
        Case.awaitAssigned(stays, topic, 8);
        Flow flow = new Flow(topic);
        c.onClose(() -> flow.stop.set(true));
        Thread.sleep(1500);
        for (int round = 0; round < 2; round++) {
            DefaultMQPushConsumer comes = c.push(group);
            c.collect(comes, topic, "*", inbox);
            Check.within(RESPLIT_SECONDS, "4 queues each after a join",
                () -> Case.assigned(stays, topic) == 4 && Case.assigned(comes, topic) == 4);
            Thread.sleep(1500);
            comes.shutdown();
            Check.within(RESPLIT_SECONDS, "all 8 queues back after a leave", () -> Case.assigned(stays, topic) == 8);
            Thread.sleep(1000);
        }
        flow.stop();
        Check.that(flow.sent.size() > 100, "only " + flow.sent.size() + " messages were sent");
        inbox.awaitAll(flow.sent, Case.PATIENCE);
        for (Message each : flow.sent) {
            Check.same(each, inbox.copies(each).get(0).message);
        }
    }

    /** An orderly queue has one consumer at a time and keeps its order through the change of hands. */
    private static void orderly(Case c) throws Exception {
        String topic = c.topic(4);
        String group = c.group();
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer stays = orderlyConsumer(c, group, topic, inbox);
        Case.awaitAssigned(stays, topic, 4);
        Flow flow = new Flow(topic);
        c.onClose(() -> flow.stop.set(true));
        Thread.sleep(1000);
        DefaultMQPushConsumer comes = orderlyConsumer(c, group, topic, inbox);
        // A client keeps the lock of a queue it gives up for up to 20 s while messages of it are in its hands.
        Check.within(45, "2 queues each after a join", () -> Case.assigned(stays, topic) == 2 && Case.assigned(comes, topic) == 2);
        Thread.sleep(1000);
        comes.shutdown();
        Check.within(45, "all 4 queues back after a leave", () -> Case.assigned(stays, topic) == 4);
        flow.stop();
        inbox.awaitAll(flow.sent, Case.PATIENCE);
        // Messages may come twice around a change of hands, but a first arrival never overtakes an earlier one.
        long[] next = new long[4];
        for (Case.Received each : inbox.all()) {
            int queue = each.message.getQueueId();
            long offset = each.message.getQueueOffset();
            Check.that(offset <= next[queue], "queue " + queue + ": " + offset + " arrived before " + next[queue]);
            next[queue] = Math.max(next[queue], offset + 1);
        }
    }

    private static DefaultMQPushConsumer orderlyConsumer(Case c, String group, String topic, Case.Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(inbox::put);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
