import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/** Puts from one process, and how long each took to be acknowledged. */
final class Puts {
    private static final String TOPIC = "bench0";
    private static final int QUEUES = 4;
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 40000);
    private static final InetSocketAddress STORED = new InetSocketAddress("127.0.0.1", 10911);

    private Puts() {
    }

    private interface Way {
        /** Returns what each of `count` puts took. Those under way at once: `writers`. */
        long[] put(DefaultMessageStore store, int writers, int count, int size) throws Exception;
    }

    /** Numbers: writers, messages, messages to warm up, body bytes. */
    static void run(DefaultMessageStore store, Replica replica, boolean inTasks, int[] numbers)
        throws Exception {
        Way way = inTasks ? Puts::inTasks : Puts::inThreads;
        way.put(store, numbers[0], numbers[2], numbers[3]);
        long began = System.nanoTime();
        long[] took = way.put(store, numbers[0], numbers[1], numbers[3]);
        double seconds = (System.nanoTime() - began) / 1e9;
        Arrays.sort(took);
        replica.say("\"messages\":%d,\"msgs_per_s\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,"
            + "\"end\":%d", took.length, took.length / seconds, took[took.length / 2] / 1e3,
            took[(int) (took.length * 99L / 100)] / 1e3, took[took.length - 1] / 1e3,
            store.getMaxPhyOffset());
    }

    /** Each thread waits for its acknowledgement. */
    private static long[] inThreads(DefaultMessageStore store, int threads, int count, int size)
        throws Exception {
        int calls = Math.max(1, count / threads);
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

    /** One thread puts, and waits when `most` of its messages are not acknowledged. */
    private static long[] inTasks(DefaultMessageStore store, int most, int count, int size)
        throws Exception {
        byte[] body = body(0, size);
        long[] took = new long[count];
        Semaphore free = new Semaphore(most);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        for (int i = 0; i < count && failed.get() == null; i++) {
            int at = i;
            free.acquire();
            MessageExtBrokerInner message = message(at % QUEUES, body);
            long began = System.nanoTime();
            store.asyncPutMessage(message).thenAccept(Puts::check).whenComplete((nothing, error) -> {
                took[at] = System.nanoTime() - began;
                failed.compareAndSet(null, error);
                free.release();
            });
        }
        free.acquire(most);
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        return took;
    }

    static void feed(DefaultMessageStore store, int count, int size) {
        put(store, 0, count, size, new long[count]);
    }

    private static void put(DefaultMessageStore store, int number, int calls, int size, long[] took) {
        byte[] body = body(number, size);
        for (int i = 0; i < calls; i++) {
            MessageExtBrokerInner message = message((i + number) % QUEUES, body);
            long began = System.nanoTime();
            PutMessageResult result = store.putMessage(message);
            took[number * calls + i] = System.nanoTime() - began;
            check(result);
        }
    }

    /** A result is called ok also when no slave has acknowledged the message in time. */
    private static void check(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("put failed: " + result.getPutMessageStatus());
        }
    }

    private static byte[] body(int seed, int size) {
        byte[] body = new byte[size];
        new Random(seed).nextBytes(body);
        return body;
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
