package peer.store;

import com.alibaba.fastjson2.JSONObject;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import peer.HaServices;

/** Builds and waits on the real {@link DefaultMessageStore}. */
final class Stores {
    private static final int QUEUE_UNIT = 20;

    private Stores() {
    }

    /** Opens (but neither loads nor starts) a store over {@code root} with the spec's settings, then {@code extra}. */
    static DefaultMessageStore open(Path root, Spec spec, Map<String, String> extra) throws IOException {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setEnableCompaction(false);
        config.setHaListenPort(0);
        inferSizes(config, root);

        Map<String, String> settings = new ConcurrentHashMap<>(spec.store());
        settings.putAll(extra);
        absoluteLogPaths(settings, root);
        apply(settings, config);

        BrokerConfig broker = new BrokerConfig();
        apply(spec.broker(), broker);

        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager(broker),
            (topic, queueId, offset, tags, time, bits, properties) -> { }, broker, topicTable(spec));
        HaServices.install(store, new NoReplication());
        if (spec.filterBitMap()) {
            // A broker computes this map from registered filters; here it is the low bytes of the physical offset.
            store.getDispatcherList().addFirst(request -> {
                byte[] bits = new byte[config.getBitMapLengthConsumeQueueExt() / 8];
                for (int i = 0; i < bits.length; i++) {
                    bits[i] = (byte) (request.getCommitLogOffset() >>> i % 8 * 8 ^ i);
                }
                request.setBitMap(bits);
            });
        }
        return store;
    }

    static DefaultMessageStore start(Path root, Spec spec, Map<String, String> extra) throws Exception {
        DefaultMessageStore store = open(root, spec, extra);
        if (!store.load()) {
            throw new IOException("the store did not load: " + root);
        }
        store.start();
        return store;
    }

    /** Waits until everything in the commit log has been dispatched to consume queues and index. */
    static boolean awaitDispatch(DefaultMessageStore store, long timeoutMillis) throws InterruptedException {
        long deadline = System.currentTimeMillis() + timeoutMillis;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                return false;
            }
            Thread.sleep(2);
        }
        return true;
    }

    static void flush(DefaultMessageStore store) throws Exception {
        store.getCommitLog().flush();
        store.getQueueStore().flush();
    }

    /** File sizes are not recorded in a store; take them from the first files found, so a bare store can be opened. */
    private static void inferSizes(MessageStoreConfig config, Path root) throws IOException {
        firstFile(root.resolve("commitlog"), 1).ifPresent(n -> config.setMappedFileSizeCommitLog((int) (long) n));
        firstFile(root.resolve("consumequeue"), 3)
            .filter(n -> n % QUEUE_UNIT == 0)
            .ifPresent(n -> config.setMappedFileSizeConsumeQueue((int) (long) n));
    }

    private static Optional<Long> firstFile(Path dir, int depth) throws IOException {
        if (!Files.isDirectory(dir)) {
            return Optional.empty();
        }
        try (Stream<Path> found = Files.walk(dir, depth)) {
            Optional<Path> first = found
                .filter(p -> Files.isRegularFile(p) && p.getFileName().toString().matches("[0-9]{20}"))
                .min(Comparator.naturalOrder());
            return first.isPresent() ? Optional.of(Files.size(first.get())) : Optional.empty();
        }
    }

    /** Commit log paths in a spec are relative to the store root, several of them separated by commas. */
    private static void absoluteLogPaths(Map<String, String> settings, Path root) throws IOException {
        String paths = settings.get("storePathCommitLog");
        if (paths == null) {
            return;
        }
        for (String path : paths.split(MixAll.MULTI_PATH_SPLITTER)) {
            Files.createDirectories(root.resolve(path));
        }
        settings.put("storePathCommitLog", Arrays.stream(paths.split(MixAll.MULTI_PATH_SPLITTER))
            .map(path -> root.resolve(path).toString())
            .collect(Collectors.joining(MixAll.MULTI_PATH_SPLITTER)));
    }

    private static void apply(Map<String, String> settings, Object bean) {
        for (String key : settings.keySet()) {
            String setter = "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
            if (Arrays.stream(bean.getClass().getMethods()).map(Method::getName).noneMatch(setter::equals)) {
                throw new IllegalArgumentException(bean.getClass().getSimpleName() + " has no setting " + key);
            }
        }
        Properties properties = new Properties();
        properties.putAll(settings);
        MixAll.properties2Object(properties, bean);
    }

    private static ConcurrentMap<String, TopicConfig> topicTable(Spec spec) {
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        for (Map.Entry<String, JSONObject> entry : spec.topics().entrySet()) {
            int queues = entry.getValue().getIntValue("queues", 1);
            TopicConfig topic = new TopicConfig(entry.getKey(), queues, queues);
            String kind = entry.getValue().getString("queueType");
            if (kind != null) {
                topic.getAttributes().put("queue.type", kind);
            }
            table.put(entry.getKey(), topic);
        }
        return table;
    }
}
