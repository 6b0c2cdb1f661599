package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask for themselves: the lite pull consumer and the plain pull consumer. */
final class LitePull {
    static void add(Suite suite) {
        suite.add("lite-pull-subscribe", LitePull::subscribe);
        suite.add("lite-pull-assign-and-seek", LitePull::assignAndSeek);
        suite.add("lite-pull-tags", LitePull::tags);
        suite.add("pull-statuses", LitePull::pullStatuses);
        suite.add("pull-offsets", LitePull::offsets);
    }

    private static Case.Inbox poll(DefaultLitePullConsumer consumer, List<Message> sent) throws Exception {
        Case.Inbox inbox = new Case.Inbox();
        Check.within(Case.PATIENCE, "lite pull consumer has " + sent.size() + " messages", () -> {
            consumer.poll(200).forEach(inbox::put);
            return inbox.distinct() >= sent.size();
        });
        consumer.poll(300).forEach(inbox::put);
        inbox.expectExactly(sent, 1);
        return inbox;
    }

    /** Subscribes, commits, and a second consumer of the group goes on behind the commit. */
    private static void subscribe(Case c) throws Exception {
        String topic = c.topic(4);
        String group = c.group();
        List<Message> first = Case.sendSome(topic, "tag", 0, 60);
        DefaultLitePullConsumer consumer = c.litePull(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, "*");
        consumer.start();
        poll(consumer, first);
        Map<MessageQueue, Long> progress = new HashMap<>();
        for (MessageQueue queue : Cluster.queues(topic)) {
            progress.put(queue, 15L);
        }
        consumer.commitSync(progress, true);
        for (MessageQueue queue : Cluster.queues(topic)) {
            Check.equal("committed offset of " + queue, 15, consumer.committed(queue));
            Check.within(10, "the broker has the commit of " + queue,
                () -> consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE) == 15);
        }
        consumer.shutdown();
        List<Message> second = Case.sendSome(topic, "tag", 60, 60);
        DefaultLitePullConsumer next = c.litePull(group);
        next.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        next.subscribe(topic, "*");
        next.start();
        poll(next, second);
    }

    private static void assignAndSeek(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> sent = Case.sendSome(topic, "tag", 0, 20);
        Thread.sleep(50);
        long middle = System.currentTimeMillis();
        Thread.sleep(50);
        sent.addAll(Case.sendSome(topic, "tag", 20, 20));
        MessageQueue queue = Cluster.queues(topic).get(1);
        List<Message> inQueue = new ArrayList<>();
        for (MessageExt each : Cluster.readAll(topic)) {
            if (each.getQueueId() == 1) {
                inQueue.add(sent.get(Integer.parseInt(each.getUserProperty("number"))));
            }
        }
        Check.equal("messages in queue 1", 20, inQueue.size());
        DefaultLitePullConsumer consumer = c.litePull(c.group());
        consumer.start();
        consumer.assign(List.of(queue));
        // A seek while the client's first pull is on its way may bring its messages twice.
        poll(consumer, inQueue);
        consumer.seek(queue, 5);
        poll(consumer, inQueue.subList(5, 20));
        consumer.seekToBegin(queue);
        poll(consumer, inQueue);
        Check.equal("offset at the time between", 10, consumer.offsetForTimestamp(queue, middle));
        consumer.seek(queue, 10);
        poll(consumer, inQueue.subList(10, 20));
        consumer.seekToEnd(queue);
        Check.equal("messages behind the end", 0, consumer.poll(500).size());
        Message last = Case.message(topic, "tag", 40);
        Case.sent(Cluster.producer().send(last, queue));
        poll(consumer, List.of(last));
    }

    private static void tags(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> wanted = Case.sendSome(topic, "TagA", 0, 10);
        Case.sendSome(topic, "TagB", 10, 10);
        wanted.addAll(Case.sendSome(topic, "TagC", 20, 10));
        DefaultLitePullConsumer consumer = c.litePull(c.group());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA||TagC");
        consumer.start();
        poll(consumer, wanted);
    }

    private static void pullStatuses(Case c) throws Exception {
        String topic = c.topic(1);
        DefaultMQPullConsumer reader = Cluster.reader();
        MessageQueue queue = Cluster.queues(topic).get(0);
        expect("empty queue", reader.pull(queue, "*", 0, 32), PullStatus.NO_NEW_MSG, 0, 0, 0);
        Case.sendSome(topic, "TagA", 0, 40);
        // Apache RocketMQ acknowledges a message before it can be read.
        Check.within(5, "40 messages can be read", () -> reader.maxOffset(queue) == 40);
        PullResult found = reader.pull(queue, "*", 0, 32);
        expect("32 of 40", found, PullStatus.FOUND, 32, 0, 40);
        Check.equal("messages", 32, found.getMsgFoundList().size());
        found = reader.pull(queue, "*", 32, 32);
        expect("the last 8", found, PullStatus.FOUND, 40, 0, 40);
        Check.equal("messages", 8, found.getMsgFoundList().size());
        expect("at the end", reader.pull(queue, "*", 40, 32), PullStatus.NO_NEW_MSG, 40, 0, 40);
        expect("behind the end", reader.pull(queue, "*", 41, 32), PullStatus.OFFSET_ILLEGAL, 40, 0, 40);
        expect("far behind the end", reader.pull(queue, "*", 4100, 32), PullStatus.OFFSET_ILLEGAL, 40, 0, 40);
        expect("other tag", reader.pull(queue, "TagB", 0, 32), PullStatus.NO_MATCHED_MSG, 40, 0, 40);
        // Held at the broker, answered by the message.
        long begin = System.nanoTime();
        Thread sender = new Thread(() -> {
            try {
                Thread.sleep(700);
                Case.sendSome(topic, "TagA", 40, 1);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        sender.start();
        found = reader.pullBlockIfNotFound(queue, "*", 40, 32);
        expect("held pull", found, PullStatus.FOUND, 41, 0, 41);
        Check.between("milliseconds the pull was held", 600, 2500, (System.nanoTime() - begin) / 1_000_000);
        sender.join();
    }

    private static void expect(String what, PullResult got, PullStatus status, long next, long min, long max) {
        Check.equal(what + ": status", status, got.getPullStatus());
        Check.equal(what + ": next offset", next, got.getNextBeginOffset());
        Check.equal(what + ": min offset", min, got.getMinOffset());
        Check.equal(what + ": max offset", max, got.getMaxOffset());
    }

    private static void offsets(Case c) throws Exception {
        String topic = c.topic(1);
        DefaultMQPullConsumer reader = Cluster.reader();
        MessageQueue queue = Cluster.queues(topic).get(0);
        Check.equal("min of an empty queue", 0, reader.minOffset(queue));
        Check.equal("max of an empty queue", 0, reader.maxOffset(queue));
        long before = System.currentTimeMillis() - 1000;
        Case.sendSome(topic, "tag", 0, 5);
        Thread.sleep(20);
        long middle = System.currentTimeMillis();
        Thread.sleep(20);
        Case.sendSome(topic, "tag", 5, 5);
        Check.within(5, "10 messages can be read", () -> reader.maxOffset(queue) == 10);
        Check.equal("min", 0, reader.minOffset(queue));
        Check.equal("max", 10, reader.maxOffset(queue));
        Check.equal("offset at a time before all", 0, reader.searchOffset(queue, before));
        Check.equal("offset at a time in the middle", 5, reader.searchOffset(queue, middle));
        Check.equal("offset at a time behind all", 10, reader.searchOffset(queue, System.currentTimeMillis() + 60_000));
        Check.between("earliest store time", before, middle, reader.earliestMsgStoreTime(queue));
        Check.equal("progress of a group on a young queue", 0, reader.fetchConsumeOffset(queue, true));
        reader.updateConsumeOffset(queue, 7);
        reader.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        Check.within(5, "the committed offset is kept", () -> reader.fetchConsumeOffset(queue, true) == 7);
    }
}
