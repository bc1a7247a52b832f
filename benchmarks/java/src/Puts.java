import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts from threads of one process, each of them waiting for its acknowledgement. */
final class Puts {
    private static final String TOPIC = "bench0";
    private static final int QUEUES = 4;
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 40000);
    private static final InetSocketAddress STORED = new InetSocketAddress("127.0.0.1", 10911);

    private Puts() {
    }

    /** Numbers: threads, messages, messages to warm up, body bytes. */
    static void run(DefaultMessageStore store, Replica replica, int[] numbers) throws Exception {
        int threads = numbers[0];
        int calls = Math.max(1, numbers[1] / threads);
        inThreads(store, threads, Math.max(1, numbers[2] / threads), numbers[3]);
        long began = System.nanoTime();
        long[] took = inThreads(store, threads, calls, numbers[3]);
        double seconds = (System.nanoTime() - began) / 1e9;
        Arrays.sort(took);
        replica.say("\"messages\":%d,\"msgs_per_s\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,"
            + "\"end\":%d", took.length, took.length / seconds, took[took.length / 2] / 1e3,
            took[(int) (took.length * 99L / 100)] / 1e3, took[took.length - 1] / 1e3,
            store.getMaxPhyOffset());
    }

    private static long[] inThreads(DefaultMessageStore store, int threads, int calls, int size)
        throws Exception {
        long[] took = new long[threads * calls];
        AtomicReference<Exception> failed = new AtomicReference<>();
        CyclicBarrier start = new CyclicBarrier(threads);
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int number = i;
            all[i] = new Thread(() -> {
                try {
                    start.await();
                    put(store, number, calls, size, took);
                } catch (Exception error) {
                    failed.compareAndSet(null, error);
                }
            });
            all[i].start();
        }
        for (Thread thread : all) {
            thread.join();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        return took;
    }

    static void feed(DefaultMessageStore store, int count, int size) {
        put(store, 0, count, size, new long[count]);
    }

    private static void put(DefaultMessageStore store, int number, int calls, int size, long[] took) {
        byte[] body = new byte[size];
        new Random(number).nextBytes(body);
        for (int i = 0; i < calls; i++) {
            MessageExtBrokerInner message = message((i + number) % QUEUES, body);
            long began = System.nanoTime();
            PutMessageResult result = store.putMessage(message);
            took[number * calls + i] = System.nanoTime() - began;
            if (!result.isOk()) {
                throw new IllegalStateException("put failed: " + result.getPutMessageStatus());
            }
        }
    }

    private static MessageExtBrokerInner message(int queue, byte[] body) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(queue);
        message.setBody(body);
        message.setTags("TagA");
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN);
        message.setStoreHost(STORED);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }
}
