package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A cluster of several brokers, such as the shards of one process are under routeMode=perShard. */
final class Brokers {
    private static final int QUEUES = 4;

    static void add(Suite suite) {
        suite.add("retry-on-every-broker", Brokers::retry);
        suite.add("delay-on-every-broker", Brokers::delay);
        suite.add("queues-of-every-broker", Brokers::queues);
        suite.add("auto-created-on-every-broker", Brokers::autoCreated);
        suite.add("orderly-over-brokers", Brokers::orderly);
        suite.add("balance-over-brokers", Brokers::balance);
    }

    /** Runs alone: it takes the brokers away from the others. */
    static void restart(Suite suite) {
        suite.run("offsets-over-restart", Brokers::offsets);
    }

    private static Map<String, List<MessageQueue>> byBroker(List<MessageQueue> queues) {
        Map<String, List<MessageQueue>> found = new HashMap<>();
        for (MessageQueue queue : queues) {
            found.computeIfAbsent(queue.getBrokerName(), name -> new ArrayList<>()).add(queue);
        }
        return found;
    }

    /** Each broker has queues from 0 on, and a message is found again where it was put: by its place, its id and its key. */
    private static void queues(Case c) throws Exception {
        String topic = c.topic(QUEUES);
        Map<String, List<MessageQueue>> brokers = byBroker(Cluster.queues(topic));
        Check.equal("brokers", Cluster.BROKERS, brokers.size());
        int number = 0;
        for (List<MessageQueue> queues : brokers.values()) {
            Check.equal("queues of " + queues.get(0).getBrokerName(), QUEUES, queues.size());
            for (int i = 0; i < QUEUES; i++) {
                Check.equal("queue id", i, queues.get(i).getQueueId());
                Message message = Case.message(topic, "tag", number++);
                SendResult sent = Case.sent(Cluster.producer().send(message, queues.get(i)));
                Check.equal("offset", 0L, sent.getQueueOffset());
                MessageExt read = Cluster.reader().pull(queues.get(i), "*", 0, 32, 10_000).getMsgFoundList().get(0);
                Check.same(message, read);
                Check.equal("queue id of the message", i, read.getQueueId());
                Check.same(message, Versioned.viewMessage(Cluster.reader(), topic, sent.getOffsetMsgId()));
            }
        }
        Check.equal("messages", number, Cluster.readById(topic, number).size());
        int all = number;
        Check.within(10, "all are found by a key they share", () ->
            Cluster.reader().queryMessage(topic, "order-0", 32, 0, Long.MAX_VALUE).getMessageList().size() == (all + 6) / 7);
    }

    /** The route that follows the first send has all brokers, so that the next sends go to all of them. */
    private static void autoCreated(Case c) throws Exception {
        String topic = Cluster.unique("brokers-auto");
        List<Message> sent = new ArrayList<>();
        sent.add(Case.message(topic, "tag", 0));
        Case.send(sent.get(0));
        Check.equal("brokers of the new topic", Cluster.BROKERS, byBroker(Cluster.queues(topic)).size());
        sent.addAll(Case.sendSome(topic, "tag", 1, 40));
        for (MessageQueue queue : Cluster.queues(topic)) {
            Check.that(Cluster.reader().maxOffset(queue) > 0, "nothing in " + queue);
        }
        Case.Inbox inbox = new Case.Inbox();
        c.collect(c.push(c.group()), topic, "*", inbox);
        inbox.expectExactly(sent, Case.PATIENCE);
    }

    /** Two consumers share the queues of all brokers evenly, and each message arrives once. */
    private static void balance(Case c) throws Exception {
        String topic = c.topic(QUEUES);
        String group = c.group();
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer one = c.push(group);
        DefaultMQPushConsumer two = c.push(group);
        c.collect(one, topic, "*", inbox);
        c.collect(two, topic, "*", inbox);
        int half = QUEUES * Cluster.BROKERS / 2;
        Case.awaitAssigned(one, topic, half);
        Case.awaitAssigned(two, topic, half);
        inbox.expectExactly(Case.sendSome(topic, "tag", 0, 200), Case.PATIENCE);
        two.shutdown();
        Case.awaitAssigned(one, topic, 2 * half);
    }

    private static void orderly(Case c) throws Exception {
        String topic = c.topic(QUEUES);
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group());
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(inbox::put);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        inbox.expectExactly(Case.sendSome(topic, "tag", 0, 400), Case.PATIENCE);
        Map<String, Long> next = new HashMap<>();
        for (Case.Received each : inbox.all()) {
            String queue = each.message.getBrokerName() + "/" + each.message.getQueueId();
            Check.equal("next offset of " + queue, next.getOrDefault(queue, 0L), each.message.getQueueOffset());
            next.put(queue, each.message.getQueueOffset() + 1);
        }
        Check.equal("queues", QUEUES * Cluster.BROKERS, next.size());
    }

    /** A message that fails comes back by way of the broker that has it. */
    private static void retry(Case c) throws Exception {
        String topic = c.topic(1);
        String group = c.group();
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Case.awaitAssigned(consumer, topic, Cluster.BROKERS);
        String retries = "%RETRY%" + group;
        Check.within(25, "the retry queues of all brokers are assigned", () -> {
            consumer.getDefaultMQPushConsumerImpl().doRebalance();
            Thread.sleep(300);
            return Case.assigned(consumer, retries) == Cluster.BROKERS;
        });
        List<Message> sent = Case.sendSome(topic, "tag", 0, 4 * Cluster.BROKERS);
        Check.within(Case.PATIENCE, "each comes twice", () -> inbox.all().size() >= 2 * sent.size());
        Thread.sleep(1500);
        for (Message each : sent) {
            List<Case.Received> copies = inbox.copies(each);
            Check.equal("arrivals of " + each.getKeys(), 2, copies.size());
            Check.same(each, copies.get(1).message);
            Check.equal("reconsume times", 1, copies.get(1).message.getReconsumeTimes());
        }
        for (MessageQueue queue : Cluster.queues(retries)) {
            Check.equal("retries in " + queue, 4L, Cluster.reader().maxOffset(queue));
        }
    }

    private static void delay(Case c) throws Exception {
        String topic = c.topic(1);
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group());
        c.collect(consumer, topic, "*", inbox);
        Case.awaitAssigned(consumer, topic, Cluster.BROKERS);
        List<Message> sent = new ArrayList<>();
        long begin = System.currentTimeMillis();
        for (MessageQueue queue : Cluster.queues(topic)) {
            Message message = Case.message(topic, "tag", sent.size());
            message.setDelayTimeLevel(1);
            Case.sent(Cluster.producer().send(message, queue));
            sent.add(message);
        }
        inbox.expectExactly(sent, Case.PATIENCE);
        for (Case.Received each : inbox.all()) {
            Check.that(each.atMillis - begin >= 1000, "early: " + (each.atMillis - begin) + " ms");
        }
        for (MessageQueue queue : Cluster.queues(topic)) {
            Check.equal("delivered to " + queue, 1L, Cluster.reader().maxOffset(queue));
        }
    }

    /** A group goes on where it was on every broker, after a clean stop and after a kill. */
    private static void offsets(Case c) throws Exception {
        String topic = c.topic(QUEUES);
        String group = c.group();
        for (int round = 0; round < 3; round++) {
            Case.Inbox inbox = new Case.Inbox();
            DefaultMQPushConsumer consumer = c.push(group);
            c.collect(consumer, topic, "*", inbox);
            inbox.expectExactly(Case.sendSome(topic, "tag", round * 80, 80), Case.PATIENCE);
            consumer.shutdown();
            if (round < 2) {
                // Longer than the interval at which offsets reach the disk.
                Thread.sleep(round == 0 ? 0 : 6000);
                Cluster.control(round == 0 ? "restart" : "kill9", "per-shard");
                Cluster.awaitQueues(topic, QUEUES * Cluster.BROKERS);
            }
        }
    }
}
