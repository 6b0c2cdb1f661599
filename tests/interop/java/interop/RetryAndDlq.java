package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages whose consumption fails. */
final class RetryAndDlq {
    static void add(Suite suite) {
        suite.add("retry-after-10s", RetryAndDlq::retry);
        suite.add("retry-several-times", RetryAndDlq::severalTimes);
        suite.add("retry-orderly", RetryAndDlq::orderly);
        suite.add("dead-letter", RetryAndDlq::deadLetter);
        suite.add("dead-letter-at-once", RetryAndDlq::deadLetterAtOnce);
    }

    /** RECONSUME_LATER brings the message back after 10 s, as the second attempt; its neighbours are not touched. */
    private static void retry(Case c) throws Exception {
        String topic = c.topic(2);
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group());
        consumer.subscribe(topic, "TagA");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            MessageExt message = messages.get(0);
            boolean fail = message.getReconsumeTimes() == 0 && Integer.parseInt(message.getUserProperty("number")) % 5 == 0;
            return fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Case.awaitAssigned(consumer, topic, 2);
        Case.awaitRetryQueue(consumer);
        List<Message> sent = Case.sendSome(topic, "TagA", 0, 10);
        inbox.awaitAll(sent, Case.PATIENCE);
        Check.within(20, "2 of 10 messages come again", () -> inbox.all().size() >= 12);
        Thread.sleep(300);
        Check.equal("arrivals", 12, inbox.all().size());
        for (Message each : sent) {
            List<Case.Received> copies = inbox.copies(each);
            boolean failed = Integer.parseInt(each.getUserProperty("number")) % 5 == 0;
            Check.equal("arrivals of " + each.getKeys(), failed ? 2 : 1, copies.size());
            Check.same(each, copies.get(0).message);
            if (failed) {
                Check.same(each, copies.get(1).message);
                Check.equal("reconsume times", 1, copies.get(1).message.getReconsumeTimes());
                Check.equal("tag", "TagA", copies.get(1).message.getTags());
                Check.between("milliseconds until the retry", 10_000 - 100, 13_000, copies.get(1).atMillis - copies.get(0).atMillis);
                Check.that(copies.get(1).message.getProperty("ORIGIN_MESSAGE_ID") != null, "ORIGIN_MESSAGE_ID is missing");
            }
        }
    }

    private static void severalTimes(Case c) throws Exception {
        String topic = c.topic(1);
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group());
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() < 3 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Case.awaitAssigned(consumer, topic, 1);
        Case.awaitRetryQueue(consumer);
        Message sent = Case.message(topic, "tag", 1);
        Case.send(sent);
        Check.within(30, "four arrivals", () -> inbox.copies(sent).size() >= 4);
        List<Case.Received> copies = inbox.copies(sent);
        for (int i = 0; i < 4; i++) {
            Check.equal("reconsume times", i, copies.get(i).message.getReconsumeTimes());
            Check.same(sent, copies.get(i).message);
            if (i > 0) {
                Check.that(copies.get(i).atMillis - copies.get(i - 1).atMillis >= 900, "retry " + i + " came early");
            }
        }
        Thread.sleep(1500);
        Check.equal("arrivals", 4, inbox.all().size());
    }

    /** SUSPEND_CURRENT_QUEUE_A_MOMENT: the same message again, and none of its queue before it. */
    private static void orderly(Case c) throws Exception {
        String topic = c.topic(1);
        List<String> seen = new ArrayList<>();
        DefaultMQPushConsumer consumer = c.push(c.group());
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            String number = messages.get(0).getUserProperty("number");
            synchronized (seen) {
                seen.add(number);
                boolean again = number.equals("3") && seen.stream().filter("3"::equals).count() < 3;
                return again ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            }
        });
        consumer.start();
        Case.sendSome(topic, "tag", 0, 6);
        List<String> wanted = List.of("0", "1", "2", "3", "3", "3", "4", "5");
        Check.within(Case.PATIENCE, "8 arrivals", () -> {
            synchronized (seen) {
                return seen.size() >= wanted.size();
            }
        });
        Check.equal("arrivals", wanted, seen);
    }

    private static void deadLetter(Case c) throws Exception {
        String topic = c.topic(1);
        String group = c.group();
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getUserProperty("number").equals("1") ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Case.awaitAssigned(consumer, topic, 1);
        Case.awaitRetryQueue(consumer);
        List<Message> sent = Case.sendSome(topic, "tag", 0, 3);
        expectDead(c, group, sent.get(1), 2);
        Check.equal("arrivals: three messages, one of them twice", 4, inbox.all().size());
    }

    private static void deadLetterAtOnce(Case c) throws Exception {
        String topic = c.topic(1);
        String group = c.group();
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            context.setDelayLevelWhenNextConsume(-1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        Case.awaitAssigned(consumer, topic, 1);
        Case.awaitRetryQueue(consumer);
        List<Message> sent = Case.sendSome(topic, "tag", 0, 1);
        expectDead(c, group, sent.get(0), 1);
        Check.equal("arrivals", 1, inbox.all().size());
    }

    /** The dead letter topic holds exactly this message and an ordinary consumer can read it. */
    private static void expectDead(Case c, String group, Message sent, int reconsumeTimes) throws Exception {
        String topic = "%DLQ%" + group;
        Check.within(30, topic + " exists", () -> {
            try {
                return !Cluster.reader().fetchSubscribeMessageQueues(topic).isEmpty();
            } catch (org.apache.rocketmq.client.exception.MQClientException routeMissing) {
                return false;
            }
        });
        Map<String, MessageExt> dead = Cluster.readById(topic, 1);
        Case.Inbox inbox = new Case.Inbox();
        c.collect(c.push(c.group()), topic, "*", inbox);
        Check.within(Case.PATIENCE, "a consumer of " + topic + " receives it", () -> !inbox.all().isEmpty());
        for (MessageExt got : List.of(dead.values().iterator().next(), inbox.all().get(0).message)) {
            Check.equal("id", Case.Inbox.id(sent), got.getMsgId());
            Check.equal("body", new String(sent.getBody()), new String(got.getBody()));
            Check.equal("properties", Check.own(sent), Check.own(got));
            Check.equal("topic it came from", sent.getTopic(), got.getProperty("RETRY_TOPIC"));
            Check.equal("reconsume times", reconsumeTimes, got.getReconsumeTimes());
        }
    }
}
