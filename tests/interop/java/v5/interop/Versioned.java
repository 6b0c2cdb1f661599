package interop;

import java.util.Collections;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What the 5.x client names differently from the 4.9 client. */
final class Versioned {
    /** The body compressions this client can choose from. */
    static final String[] COMPRESSIONS = {"ZLIB", "LZ4", "ZSTD"};

    static void compression(DefaultMQProducer producer, String name) {
        producer.setCompressType(CompressionType.valueOf(name));
    }

    static void broadcasting(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static void createTopic(DefaultMQProducer producer, String routeOf, String topic, int queues) throws Exception {
        producer.createTopic(routeOf, topic, queues, Collections.<String, String>emptyMap());
    }

    static MessageExt viewMessage(DefaultMQPullConsumer consumer, String topic, String offsetMsgId) throws Exception {
        return consumer.viewMessage(topic, offsetMsgId);
    }
}
