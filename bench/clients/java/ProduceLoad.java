import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** {@code ProduceLoad NAMESRV TOPIC SIZE}: the Java client's side of the comparison; see README.md for what it reads and prints. */
public final class ProduceLoad {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final DefaultMQProducer producer;
    private final String topic;
    private final byte[] body;
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();

    private ProduceLoad(String namesrv, String topic, int size) throws Exception {
        producer = new DefaultMQProducer("produce-load-java");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        this.topic = topic;
        body = new byte[size];
        Arrays.fill(body, (byte) 'x');
    }

    public static void main(String[] args) throws Exception {
        ProduceLoad load = new ProduceLoad(args[0], args[1], Integer.parseInt(args[2]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("{\"ready\":true}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            System.out.println(load.run(words[0], Integer.parseInt(words[1]), Double.parseDouble(words[2])));
        }
        load.producer.shutdown();
        System.exit(0);
    }

    private String run(String kind, int number, double seconds) throws Exception {
        sent.set(0);
        failed.set(0);
        long cpu = SYSTEM.getProcessCpuTime();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        switch (kind) {
            case "sync":
                sync(number, end);
                break;
            case "async":
                async(number, end);
                break;
            case "batch":
                batch(number, end);
                break;
            default:
                throw new IllegalArgumentException("unknown kind " + kind);
        }
        double took = (System.nanoTime() - begin) / 1e9;
        double used = (SYSTEM.getProcessCpuTime() - cpu) / 1e9;
        return String.format(Locale.ROOT, "{\"messages\":%d,\"failed\":%d,\"seconds\":%.6f,\"cpu_seconds\":%.6f}",
            sent.get(), failed.get(), took, used);
    }

    private void count(SendResult result, int messages) {
        (result.getSendStatus() == SendStatus.SEND_OK ? sent : failed).addAndGet(messages);
    }

    private void failed(Throwable error, int messages) {
        if (failed.getAndAdd(messages) == 0) {
            System.err.println(error);
        }
    }

    private void sync(int threads, long end) throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        count(producer.send(new Message(topic, body)), 1);
                    } catch (Exception e) {
                        failed(e, 1);
                    }
                }
            });
            thread.start();
            all.add(thread);
        }
        for (Thread each : all) {
            each.join();
        }
    }

    private void async(int inFlight, long end) throws Exception {
        Semaphore free = new Semaphore(inFlight);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                count(result, 1);
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                failed(error, 1);
                free.release();
            }
        };
        while (System.nanoTime() < end) {
            free.acquire();
            try {
                producer.send(new Message(topic, body), callback);
            } catch (Exception e) {
                callback.onException(e);
            }
        }
        free.acquire(inFlight);
    }

    private void batch(int size, long end) {
        while (System.nanoTime() < end) {
            List<Message> messages = new ArrayList<>(size);
            for (int i = 0; i < size; i++) {
                messages.add(new Message(topic, body));
            }
            try {
                count(producer.send(messages), size);
            } catch (Exception e) {
                failed(e, size);
            }
        }
    }
}
