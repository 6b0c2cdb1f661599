package interop;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.Message;

/** Messages with a delay level: never early, and not late. */
final class Delay {
    private static final int[] LEVEL_SECONDS = {0, 1, 5, 10};

    static void add(Suite suite) {
        suite.add("delay-level", Delay::levels);
    }

    private static void levels(Case c) throws Exception {
        String topic = c.topic(2);
        Case.Inbox inbox = new Case.Inbox();
        var consumer = c.push(c.group());
        c.collect(consumer, topic, "*", inbox);
        Case.awaitAssigned(consumer, topic, 2);
        List<Message> sent = new ArrayList<>();
        List<Long> sentFrom = new ArrayList<>();
        List<Long> sentUntil = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            Message message = Case.message(topic, "tag", i);
            message.setDelayTimeLevel(i % 4);
            sentFrom.add(System.currentTimeMillis());
            Case.send(message);
            sentUntil.add(System.currentTimeMillis());
            sent.add(message);
        }
        inbox.expectExactly(sent, Case.PATIENCE);
        for (int i = 0; i < sent.size(); i++) {
            long at = inbox.copies(sent.get(i)).get(0).atMillis;
            long due = LEVEL_SECONDS[i % 4] * 1000L;
            Check.that(at - sentFrom.get(i) >= due, "a message of level " + i % 4 + " arrived after " + (at - sentFrom.get(i)) + " ms");
            Check.that(at - sentUntil.get(i) < due + 2000, "a message of level " + i % 4 + " arrived after " + (at - sentUntil.get(i)) + " ms");
        }
    }
}
