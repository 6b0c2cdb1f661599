package interop;

import java.util.List;
import org.apache.rocketmq.common.message.Message;

/** The shortest proof that a cluster works: an auto-created and a created topic, produced to and consumed from. */
final class Roundtrip {
    static void run(Case c) throws Exception {
        Message first = Case.message(Cluster.unique("roundtrip-auto"), "tag", 0);
        Case.send(first);
        Case.Inbox auto = new Case.Inbox();
        c.collect(c.push(c.group()), first.getTopic(), "*", auto);
        auto.expectExactly(List.of(first), Case.PATIENCE);

        String topic = c.topic(4);
        Case.Inbox inbox = new Case.Inbox();
        c.collect(c.push(c.group()), topic, "*", inbox);
        inbox.expectExactly(Case.sendSome(topic, "tag", 0, 200), Case.PATIENCE);
    }
}
