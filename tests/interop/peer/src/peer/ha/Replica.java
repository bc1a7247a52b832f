package peer.ha;

import java.io.File;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.DefaultHAService;
import org.apache.rocketmq.store.ha.HAClient;
import org.apache.rocketmq.store.ha.HAConnection;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.logfile.MappedFile;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import peer.HaServices;
import peer.Options;

/** One real message store that plays one side of a replica pair. */
final class Replica {
    private static final int FILE_SIZE = 16 * 1024;
    private static final String HOST = "127.0.0.1";
    private static final String TOPIC = "HaTopic";
    private static final int QUEUES = 2;

    private final Options options;
    private final Events events;
    private final boolean switching;
    private final long brokerId;
    private final MessageStoreConfig config = new MessageStoreConfig();
    private final BrokerConfig broker = new BrokerConfig();
    private final Workload workload;
    private DefaultMessageStore store;
    private volatile boolean stopped;

    Replica(Options options, Events events, boolean switching, boolean master) {
        this.options = options;
        this.events = events;
        this.switching = switching;
        this.brokerId = options.bigNumber("broker-id", master ? (switching ? 1 : 0) : 2);
        configure(master);
        this.workload = new Workload(options.bigNumber("seed", 1), TOPIC, QUEUES, HOST, config.getHaListenPort());
        this.workload.skipTo(options.bigNumber("first-message", 0));
    }

    private void configure(boolean master) {
        String dir = options.need("dir");
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + File.separator + "commitlog");
        config.setHaListenPort(options.number("ha-port", 0));
        config.setMappedFileSizeCommitLog(FILE_SIZE);
        config.setMappedFileSizeConsumeQueue(1000 * 20);
        config.setMaxHashSlotNum(500);
        config.setMaxIndexNum(2000);
        config.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
        config.setFlushIntervalConsumeQueue(1);
        config.setWarmMapedFileEnable(false);
        config.setHaSendHeartbeatInterval(options.number("heartbeat-ms", 1000));
        config.setHaTransferBatchSize(options.number("batch-size", 32 * 1024));
        config.setTotalReplicas(options.number("total-replicas", 2));
        config.setInSyncReplicas(options.number("in-sync-replicas", 1));
        config.setAllAckInSyncStateSet(options.flag("all-ack"));
        // Other tests may keep the disk busy for longer than the 5 s that are its default.
        config.setSyncFlushTimeout(60_000);
        config.setSlaveTimeout(options.number("slave-timeout-ms", 3000));
        config.setAsyncLearner(options.flag("async-learner"));
        config.setSyncFromLastFile(options.flag("sync-from-last-file"));
        config.setBrokerRole(master ? BrokerRole.SYNC_MASTER : BrokerRole.SLAVE);
        broker.setBrokerName("peer-ha");
        broker.setBrokerClusterName("peer");
        broker.setBrokerId(master && !switching ? MixAll.MASTER_ID : brokerId);
        broker.setBrokerIP1(HOST);
        broker.setEnableControllerMode(switching);
        apply(options.storeSettings(), config);
        apply(options.brokerSettings(), broker);
    }

    private static void apply(Map<String, String> settings, Object target) {
        Properties p = new Properties();
        p.putAll(settings);
        MixAll.properties2Object(p, target);
    }

    // ---------------------------------------------------------------- life cycle

    void open() throws Exception {
        new File(config.getStorePathCommitLog()).mkdirs();
        store = new DefaultMessageStore(config, new BrokerStatsManager(broker.getBrokerClusterName(), false),
            null, broker, new ConcurrentHashMap<>());
        HaServices.install(store, switching ? new HaServices.Switching(HOST)
            : new HaServices.Classic(HOST, options.text("master", null)));
        if (switching) {
            store.getRunningFlags().makeFenced(true);
        }
        if (!store.load()) {
            throw new IllegalStateException("the store did not load");
        }
        store.start();
        if (switching) {
            AutoSwitchHAService ha = ha();
            ha.setLocalBrokerId(brokerId);
            ha.registerSyncStateSetChangedListener(this::onSyncStateSet);
        }
    }

    void becomeMaster(int epoch, Set<Long> syncStateSet) throws Exception {
        if (!switching) {
            throw new IllegalStateException("only an autoswitch replica can be promoted");
        }
        ha().setSyncStateSet(new HashSet<>(syncStateSet));
        if (!ha().changeToMaster(epoch)) {
            throw new IllegalStateException("changeToMaster(" + epoch + ") refused, last epoch " + ha().getLastEpoch());
        }
        broker.setBrokerId(MixAll.MASTER_ID);
        config.setBrokerRole(BrokerRole.SYNC_MASTER);
        store.getRunningFlags().makeFenced(false);
    }

    /** A new epoch for a master that stays master: connections are kept. */
    void bump(int epoch) {
        if (!ha().changeToMasterWhenLastRoleIsMaster(epoch)) {
            throw new IllegalStateException("epoch " + epoch + " refused, last epoch " + ha().getLastEpoch());
        }
    }

    void becomeSlave(int epoch, String masterHaAddress) {
        if (switching) {
            config.setBrokerRole(BrokerRole.SLAVE);
            broker.setBrokerId(brokerId);
            store.getRunningFlags().makeFenced(false);
            if (!ha().changeToSlave("", epoch, brokerId)) {
                throw new IllegalStateException("changeToSlave(" + epoch + ") refused, last epoch " + ha().getLastEpoch());
            }
        }
        if (masterHaAddress != null && (switching || !masterHaAddress.equals(store.getHaService().getHAClient().getHaMasterAddress()))) {
            store.getHaService().updateHaMasterAddress(masterHaAddress);
        }
    }

    void close() {
        stopped = true;
        store.shutdown();
    }

    /** Follows the service the way a broker does after its controller has agreed. */
    private void onSyncStateSet(Set<Long> wanted) {
        events.emit("syncStateSetWanted", "set", new TreeSet<>(wanted));
        if (options.flag("auto-sync-set")) {
            ha().setSyncStateSet(new HashSet<>(wanted));
            events.emit("syncStateSet", "set", new TreeSet<>(ha().getLocalSyncStateSet()));
        }
    }

    private AutoSwitchHAService ha() {
        return (AutoSwitchHAService) store.getHaService();
    }

    // ---------------------------------------------------------------- watching

    Map<String, Object> state() {
        Map<String, Object> m = Events.map(
            "role", config.getBrokerRole().name(),
            "brokerId", brokerId,
            "protocol", switching ? "autoswitch" : "default",
            "haPort", config.getHaListenPort(),
            "minOffset", store.getMinPhyOffset(),
            "maxOffset", store.getMaxPhyOffset(),
            "confirmOffset", store.getConfirmOffset(),
            "flushedOffset", store.getFlushedWhere(),
            "dispatchBehind", store.dispatchBehindBytes(),
            "ackedBySlaves", store.getHaService().getPush2SlaveMaxOffset().get());
        List<Object> connections = new ArrayList<>();
        List<HAConnection> list = store.getHaService().getConnectionList();
        synchronized (list) {
            for (HAConnection c : list) {
                Map<String, Object> one = Events.map("peer", c.getClientAddress(), "state", c.getCurrentState().name(),
                    "ackOffset", c.getSlaveAckOffset(), "nextTransfer", c.getTransferFromWhere());
                if (c instanceof AutoSwitchHAConnection a) {
                    one.put("slaveId", a.getSlaveId());
                    one.put("asyncLearner", a.isAsyncLearner());
                    one.put("syncFromLastFile", a.isSyncFromLastFile());
                }
                connections.add(one);
            }
        }
        m.put("connections", connections);
        HAClient client = store.getHaService().getHAClient();
        if (client != null) {
            m.put("client", Events.map("master", client.getHaMasterAddress(), "state", client.getCurrentState().name()));
        }
        if (switching) {
            m.put("syncStateSet", new TreeSet<>(ha().getLocalSyncStateSet()));
            m.put("synchronizing", ha().isSynchronizingSyncStateSet());
            List<Object> epochs = new ArrayList<>();
            for (EpochEntry e : ha().getEpochEntries()) {
                epochs.add(List.of(e.getEpoch(), e.getStartOffset()));
            }
            m.put("epochs", epochs);
        } else {
            m.put("inSyncReplicas", store.getHaService().inSyncReplicasNums(store.getMaxPhyOffset()));
        }
        return m;
    }

    /** Emits a state event whenever anything in the state has changed. */
    void watch(long intervalMs) {
        Thread t = new Thread(() -> {
            Map<String, Object> last = null;
            while (!stopped) {
                try {
                    Map<String, Object> now = state();
                    if (!now.equals(last)) {
                        events.emit("state", now);
                        last = now;
                    }
                    Thread.sleep(intervalMs);
                } catch (InterruptedException e) {
                    return;
                } catch (RuntimeException e) {
                    if (!stopped) {
                        events.emit("error", "in", "watch", "message", e.toString());
                    }
                }
            }
        }, "watch");
        t.setDaemon(true);
        t.start();
    }

    // ---------------------------------------------------------------- commands

    Map<String, Object> put(int count, int size) {
        Map<String, Integer> statuses = new TreeMap<>();
        long first = workload.next();
        for (int i = 0; i < count; i++) {
            PutMessageResult r = store.putMessage(workload.message(size));
            statuses.merge(r.getPutMessageStatus().name(), 1, Integer::sum);
        }
        return Events.map("first", first, "count", count, "statuses", statuses, "maxOffset", store.getMaxPhyOffset(),
            "confirmOffset", store.getConfirmOffset());
    }

    /** Drops the first commit log file, as expiry would, and the epochs that lie wholly before it. */
    Map<String, Object> deleteFirstFile() {
        var queue = store.getCommitLog().getMappedFileQueue();
        MappedFile first = queue.getFirstMappedFile();
        if (first == null || queue.getMappedFiles().size() < 2) {
            return Events.map("ok", false, "reason", "fewer than two files");
        }
        first.shutdown(1000);
        boolean ok = queue.retryDeleteFirstFile(1000);
        if (ok && switching) {
            ha().truncateEpochFilePrefix(store.getMinPhyOffset() - 1);
        }
        return Events.map("ok", ok, "minOffset", store.getMinPhyOffset());
    }

    Map<String, Object> setSyncStateSet(Set<Long> ids) {
        ha().setSyncStateSet(new HashSet<>(ids));
        return Events.map("set", new TreeSet<>(ha().getLocalSyncStateSet()), "confirmOffset", store.getConfirmOffset());
    }

    /** SHA-256 of the commit log bytes in [from, to), -1 for the ends of the log. */
    Map<String, Object> hash(long from, long to) throws Exception {
        long at = from < 0 ? store.getMinPhyOffset() : from;
        long end = to < 0 ? store.getMaxPhyOffset() : to;
        long start = at;
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        while (at < end) {
            SelectMappedBufferResult r = store.getCommitLogData(at);
            if (r == null) {
                return Events.map("ok", false, "missingAt", at);
            }
            try {
                ByteBuffer b = r.getByteBuffer();
                int n = (int) Math.min(r.getSize(), end - at);
                if (n == 0) {
                    return Events.map("ok", false, "missingAt", at);
                }
                b.limit(n);
                sha.update(b);
                at += n;
            } finally {
                r.release();
            }
        }
        return Events.map("ok", true, "from", start, "to", end, "sha256", HexFormat.of().formatHex(sha.digest()));
    }

    /** What a consumer would find: readable messages and offsets of each queue. */
    Map<String, Object> queues() throws Exception {
        List<Object> all = new ArrayList<>();
        int readable = 0;
        for (int q = 0; q < QUEUES; q++) {
            long min = store.getMinOffsetInQueue(TOPIC, q);
            long max = store.getMaxOffsetInQueue(TOPIC, q);
            int n = 0;
            long at = min;
            while (at < max) {
                GetMessageResult r = store.getMessage("peer", TOPIC, q, at, 32, null);
                if (r == null || r.getMessageCount() == 0) {
                    if (r != null) {
                        r.release();
                    }
                    break;
                }
                n += r.getMessageCount();
                at = r.getNextBeginOffset();
                r.release();
            }
            readable += n;
            all.add(Events.map("queue", q, "min", min, "max", max, "readable", n));
        }
        return Events.map("readable", readable, "queues", all);
    }

    /** Points the client side at no master. */
    void disconnect() {
        store.getHaService().updateHaMasterAddress(null);
        if (store.getHaService().getHAClient() != null) {
            store.getHaService().getHAClient().closeMaster();
        }
    }

    void skipTo(long message) {
        workload.skipTo(message);
    }

    static final String COMMANDS = """
        put N SIZE | status | queues | hash [FROM TO] | delete-first
        promote EPOCH ID,ID.. | bump EPOCH | disconnect | syncset ID,ID.. | skip N | quit""";
}
