package peer.store;

import com.alibaba.fastjson2.JSONObject;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import peer.Options;

/** {@code bench}: baseline figures of the real store, one JSON line per measurement. */
final class Bench {
    private static final long DISPATCH_TIMEOUT = 600_000;
    private static final int PULL = 32;
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 40000);
    private static final InetSocketAddress STORED = new InetSocketAddress("127.0.0.1", 10911);

    private final Options options;
    private final Path dir;
    private final int messages;
    private final int body;
    private final int threads;
    private final int topics;
    private final int queues;
    /** Puts a second of each thread, 0 for no limit. */
    private final int rate;

    private Bench(Options options) {
        this.options = options;
        this.dir = options.path("dir");
        this.messages = options.number("messages", 500_000);
        this.body = options.number("body", 1024);
        this.threads = options.number("threads", 1);
        this.topics = options.number("topics", 1);
        this.queues = options.number("queues", 4);
        this.rate = options.number("rate", 0);
    }

    static int run(Options options) throws Exception {
        Bench bench = new Bench(options);
        switch (options.word(0)) {
            case "put" -> bench.put(1);
            case "batchput" -> bench.put(options.number("batch", 32));
            case "get" -> bench.get();
            case "recover" -> bench.recover();
            default -> throw new IllegalArgumentException("unknown benchmark " + options.word(0));
        }
        return 0;
    }

    private interface Work {
        void run(int thread, int calls, Latencies latencies) throws Exception;
    }

    // ---- put, batchput ----

    private void put(int batch) throws Exception {
        DefaultMessageStore store = Stores.start(dir, Spec.empty(), settings());
        int calls = Math.max(1, messages / batch / threads);
        int warmUp = Math.max(1, options.number("warmup", Math.max(1000, messages / 5)) / batch / threads);
        Work work = (thread, count, latencies) -> {
            Random random = new Random(thread);
            byte[] payload = new byte[body];
            random.nextBytes(payload);
            long start = System.nanoTime();
            for (int i = 0; i < count; i++) {
                String topic = "bench" + i % topics;
                int queue = (i / topics + thread) % queues;
                long begin;
                PutMessageResult result;
                if (batch == 1) {
                    MessageExtBrokerInner message = single(topic, queue, payload);
                    begin = begin(start, i);
                    result = store.putMessage(message);
                } else {
                    MessageExtBatch message = batch(topic, queue, payload, batch);
                    begin = begin(start, i);
                    result = store.putMessages(message);
                }
                latencies.add(System.nanoTime() - begin);
                if (!result.isOk()) {
                    throw new IllegalStateException("put failed: " + result.getPutMessageStatus());
                }
            }
        };
        inThreads(warmUp, work);
        Stores.awaitDispatch(store, DISPATCH_TIMEOUT);

        long startOffset = store.getMaxPhyOffset();
        Latencies[] latencies = new Latencies[threads];
        long begin = System.nanoTime();
        double seconds = inThreads(calls, work, latencies);
        Stores.awaitDispatch(store, DISPATCH_TIMEOUT);
        double dispatched = (System.nanoTime() - begin) / 1e9;
        Stores.flush(store);
        double flushed = (System.nanoTime() - begin) / 1e9;

        long done = (long) calls * batch * threads;
        JSONObject line = header(batch == 1 ? "put" : "batchput", done);
        line.put("flush", options.text("flush", "async"));
        line.put("transient_pool", options.has("transient-pool"));
        line.put("batch", batch);
        rates(line, done, store.getMaxPhyOffset() - startOffset, seconds);
        line.put("msgs_per_s_dispatched", Math.round(done / dispatched));
        line.put("msgs_per_s_flushed", Math.round(done / flushed));
        Latencies.report(line, latencies);
        System.out.println(line);
        store.shutdown();
    }

    /** The moment from which call i counts: with a rate, when it was due, be it late or not. */
    private long begin(long start, int i) {
        long now = System.nanoTime();
        if (rate == 0) {
            return now;
        }
        long due = start + i * 1_000_000_000L / rate;
        while (now < due) {
            Thread.onSpinWait();
            now = System.nanoTime();
        }
        return due;
    }

    private static void header(MessageExt message, String topic, int queue) {
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN);
        message.setStoreHost(STORED);
    }

    private static MessageExtBrokerInner single(String topic, int queue, byte[] payload) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        header(message, topic, queue);
        message.setTags("TagA");
        message.setBody(payload);
        return Generator.seal(message);
    }

    private static MessageExtBatch batch(String topic, int queue, byte[] payload, int size) {
        List<Message> members = new ArrayList<>(size);
        for (int i = 0; i < size; i++) {
            members.add(new Message(topic, "TagA", payload));
        }
        MessageExtBatch message = new MessageExtBatch();
        header(message, topic, queue);
        message.setBody(MessageDecoder.encodeMessages(members));
        return message;
    }

    // ---- get ----

    private void get() throws Exception {
        DefaultMessageStore store = Stores.start(dir, Spec.empty(), settings());
        Stores.awaitDispatch(store, DISPATCH_TIMEOUT);
        long[] bytes = new long[1];
        long[] read = new long[1];
        boolean decode = options.has("decode");
        int rounds = options.number("rounds", 2); // the first one warms up
        for (int round = 0; round < rounds; round++) {
            bytes[0] = 0;
            read[0] = 0;
            List<ConsumeQueueInterface> all = new StoreReader(store).queues();
            long total = all.stream().mapToLong(q -> q.getMaxOffsetInQueue() - q.getMinOffsetInQueue()).sum();
            Latencies latencies = new Latencies((int) (total / PULL * 2 + 1024));
            long begin = System.nanoTime();
            for (ConsumeQueueInterface queue : all) {
                pullAll(store, queue, decode, latencies, bytes, read);
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            if (round == rounds - 1) {
                JSONObject line = header("get", read[0]);
                line.remove("threads");
                line.put("pull", PULL);
                line.put("decode", decode);
                rates(line, read[0], bytes[0], seconds);
                Latencies.report(line, latencies);
                System.out.println(line);
            }
        }
        store.shutdown();
    }

    private static void pullAll(DefaultMessageStore store, ConsumeQueueInterface queue, boolean decode,
        Latencies latencies, long[] bytes, long[] read) {
        long offset = queue.getMinOffsetInQueue();
        while (offset < queue.getMaxOffsetInQueue()) {
            long begin = System.nanoTime();
            GetMessageResult result = store.getMessage("bench", queue.getTopic(), queue.getQueueId(), offset, PULL, null);
            if (decode) {
                for (SelectMappedBufferResult found : result.getMessageMapedList()) {
                    MessageDecoder.decode(found.getByteBuffer().duplicate(), true, false, false, false, true);
                }
            }
            latencies.add(System.nanoTime() - begin);
            bytes[0] += result.getBufferTotalSize();
            read[0] += result.getMessageCount();
            offset = result.getNextBeginOffset();
            boolean empty = result.getMessageCount() == 0;
            result.release();
            if (empty) {
                throw new IllegalStateException("nothing at " + queue.getTopic() + "-" + queue.getQueueId() + "@" + offset);
            }
        }
    }

    // ---- recover ----

    /** Times load() after a clean stop, after a crash with a checkpoint, and after a crash without one. */
    private void recover() throws Exception {
        Path abort = dir.resolve("abort");
        Path checkpoint = dir.resolve("checkpoint");
        byte[] saved = Files.readAllBytes(checkpoint);
        for (String kind : List.of("clean", "crash", "crash-no-checkpoint")) {
            List<Double> millis = new ArrayList<>();
            long end = 0;
            for (int round = 0; round < options.number("rounds", 3); round++) {
                Files.deleteIfExists(abort);
                Files.deleteIfExists(checkpoint);
                if (!kind.equals("clean")) {
                    Files.createFile(abort);
                }
                if (!kind.equals("crash-no-checkpoint")) {
                    Files.write(checkpoint, saved);
                }
                DefaultMessageStore store = Stores.open(dir, Spec.empty(), settings());
                long begin = System.nanoTime();
                if (!store.load()) {
                    throw new IllegalStateException("load() returned false");
                }
                millis.add(Math.round((System.nanoTime() - begin) / 1e4) / 100.0);
                end = store.getMaxPhyOffset();
            }
            JSONObject line = new JSONObject();
            line.put("bench", "recover");
            line.put("kind", kind);
            line.put("log_bytes", end);
            line.put("load_ms", millis);
            System.out.println(line);
        }
        Files.deleteIfExists(abort);
        Files.write(checkpoint, saved);
    }

    // ---- shared ----

    private Map<String, String> settings() {
        Map<String, String> out = new HashMap<>();
        out.put("flushDiskType", options.text("flush", "async").equals("sync") ? "SYNC_FLUSH" : "ASYNC_FLUSH");
        if (options.has("transient-pool")) {
            out.put("transientStorePoolEnable", "true");
            out.put("transientStorePoolSize", "3");
            out.put("mappedFileSizeCommitLog", String.valueOf(256 << 20));
        }
        out.putAll(options.storeSettings());
        return out;
    }

    private double inThreads(int calls, Work work) throws Exception {
        return inThreads(calls, work, new Latencies[threads]);
    }

    /** Runs the work in all threads at once; returns seconds from the common start to the last one's end. */
    private double inThreads(int calls, Work work, Latencies[] latencies) throws Exception {
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch go = new CountDownLatch(1);
        List<Throwable> failures = new ArrayList<>();
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int number = i;
            latencies[i] = new Latencies(calls);
            Thread thread = new Thread(() -> {
                ready.countDown();
                try {
                    go.await();
                    work.run(number, calls, latencies[number]);
                } catch (Throwable e) {
                    synchronized (failures) {
                        failures.add(e);
                    }
                }
            });
            thread.start();
            running.add(thread);
        }
        ready.await();
        long begin = System.nanoTime();
        go.countDown();
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        if (!failures.isEmpty()) {
            throw new IllegalStateException("a worker failed", failures.get(0));
        }
        return seconds;
    }

    private JSONObject header(String name, long done) {
        JSONObject line = new JSONObject();
        line.put("bench", name);
        line.put("messages", done);
        line.put("threads", threads);
        return line;
    }

    private void rates(JSONObject line, long done, long logBytes, double seconds) {
        line.put("bytes_per_message", done == 0 ? 0 : logBytes / done);
        line.put("seconds", Math.round(seconds * 1000) / 1000.0);
        line.put("msgs_per_s", Math.round(done / seconds));
        line.put("log_MB_per_s", Math.round(logBytes / seconds / 1e4) / 100.0);
    }
}
