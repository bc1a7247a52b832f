import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.DefaultHAService;
import org.apache.rocketmq.store.ha.HAService;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * One real message store as a side of a pair, measured by commands on the standard input.
 *
 * <pre>
 * Replica master|slave classic|autoswitch DIR [MASTER_HOST:PORT]
 *
 * put THREADS COUNT WARMUP SIZE   synchronous puts, each acknowledged by both sides
 * tasks MOST COUNT WARMUP SIZE    the same asynchronously from one thread, so many under way
 * feed COUNT SIZE                 puts that wait for nobody
 * sync                            waits until the slave has all
 * arm                             looks out for the next byte of the log
 * follow OFFSET                   waits until the log ends there; when it did, and that next byte
 * quit
 * </pre>
 *
 * Answers are lines of JSON. Times are System.nanoTime(), which on Linux is the clock that all
 * processes share. Settings are the store's own but for quorum and port: flushing is asynchronous.
 */
public final class Replica {
    private static final long MASTER = 1;
    private static final long SLAVE = 2;
    private static final long FIRST_POLL_NS = 500_000;
    private static final long END_POLL_NS = 2_000_000;
    private static final long PATIENCE_NS = 120_000_000_000L;

    private final PrintStream out;
    private final MessageStoreConfig config = new MessageStoreConfig();
    private final DefaultMessageStore store;
    private final long beganNs;
    private volatile long firstNs;

    /** Threads of the store would keep a process alive whose main thread has failed. */
    public static void main(String[] args) {
        int status = 0;
        try {
            serve(args);
        } catch (Exception error) {
            error.printStackTrace();
            status = 1;
        }
        Runtime.getRuntime().halt(status);
    }

    private static void serve(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        System.setOut(System.err);
        boolean isMaster = args[0].equals("master");
        boolean switches = args[1].equals("autoswitch");
        Replica replica = new Replica(out, isMaster, switches, args[2], isMaster ? null : args[3]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            replica.obey(line.split(" "));
        }
        // A clean shutdown sleeps for seconds, and nobody reads these files again but as bytes.
        replica.store.flush();
    }

    private Replica(PrintStream out, boolean isMaster, boolean switches, String root, String master)
        throws Exception {
        this.out = out;
        BrokerConfig broker = configure(isMaster, switches, root);
        Files.createDirectories(Path.of(root, "commitlog"));
        store = new DefaultMessageStore(config, new BrokerStatsManager("bench", false), null, broker,
            new ConcurrentHashMap<>());
        if (!switches) {
            install(store, new Classic(master));
        }
        if (!store.load()) {
            throw new IllegalStateException("the store did not load");
        }
        beganNs = System.nanoTime();
        arm();
        store.start();
        if (switches) {
            takeRole((AutoSwitchHAService) store.getHaService(), isMaster, master);
        }
        say("\"port\":%d,\"end\":%d,\"began_ns\":%d", config.getHaListenPort(),
            store.getMaxPhyOffset(), beganNs);
    }

    private BrokerConfig configure(boolean isMaster, boolean switches, String root) {
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setHaListenPort(0);
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setBrokerRole(isMaster ? BrokerRole.SYNC_MASTER : BrokerRole.SLAVE);
        config.setTotalReplicas(2);
        config.setInSyncReplicas(isMaster ? 2 : 1);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("bench");
        broker.setBrokerClusterName("bench");
        broker.setBrokerId(isMaster ? MixAll.MASTER_ID : SLAVE);
        broker.setBrokerIP1("127.0.0.1");
        broker.setEnableControllerMode(switches);
        return broker;
    }

    /** The set grows by what the service asks for, as a controller would let it. */
    private void takeRole(AutoSwitchHAService service, boolean isMaster, String master)
        throws Exception {
        service.setLocalBrokerId(isMaster ? MASTER : SLAVE);
        service.registerSyncStateSetChangedListener(service::setSyncStateSet);
        if (isMaster) {
            service.setSyncStateSet(Set.of(MASTER));
        }
        boolean done = isMaster ? service.changeToMaster(1) : service.changeToSlave("", 1, SLAVE);
        if (!done) {
            throw new IllegalStateException("the role was refused");
        }
        if (!isMaster) {
            service.updateHaMasterAddress(master);
        }
    }

    /** A slave that knows its master from the start: told later, it looks only every five seconds. */
    private static final class Classic extends DefaultHAService {
        private final String master;

        Classic(String master) {
            this.master = master;
        }

        @Override
        public void init(DefaultMessageStore store) throws IOException {
            super.init(store);
            if (master != null) {
                updateHaMasterAddress(master);
            }
        }
    }

    private static void install(DefaultMessageStore store, DefaultHAService service) throws Exception {
        Field field = DefaultMessageStore.class.getDeclaredField("haService");
        field.setAccessible(true);
        field.set(store, service);
    }

    private void arm() {
        long start = store.getMaxPhyOffset();
        firstNs = 0;
        Thread watch = new Thread(() -> {
            while (store.getMaxPhyOffset() <= start) {
                LockSupport.parkNanos(FIRST_POLL_NS);
            }
            firstNs = System.nanoTime();
        }, "watch");
        watch.setDaemon(true);
        watch.start();
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "put", "tasks" -> Puts.run(store, this, words[0].equals("tasks"), numbers(words));
            case "feed" -> feed(numbers(words));
            case "sync" -> sync();
            case "arm" -> {
                arm();
                say("\"end\":%d", store.getMaxPhyOffset());
            }
            case "follow" -> follow(Long.parseLong(words[1]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static int[] numbers(String[] words) {
        int[] found = new int[words.length - 1];
        for (int i = 0; i < found.length; i++) {
            found[i] = Integer.parseInt(words[i + 1]);
        }
        return found;
    }

    /** As an asynchronous master it waits for no slave. */
    private void feed(int[] numbers) {
        config.setBrokerRole(BrokerRole.ASYNC_MASTER);
        Puts.feed(store, numbers[0], numbers[1]);
        config.setBrokerRole(BrokerRole.SYNC_MASTER);
        say("\"end\":%d", store.getMaxPhyOffset());
    }

    /** A slave that has not told its offset counts as one in sync, and acknowledges nothing yet. */
    private void sync() {
        HAService service = store.getHaService();
        await(() -> service.inSyncReplicasNums(store.getMaxPhyOffset()) >= 2
            && service.getConnectionList().stream().allMatch(each -> each.getSlaveAckOffset() >= 0)
            && service.getPush2SlaveMaxOffset().get() >= store.getMaxPhyOffset());
        say("\"end\":%d", store.getMaxPhyOffset());
    }

    private void follow(long offset) {
        await(() -> store.getMaxPhyOffset() >= offset && firstNs != 0);
        long end = System.nanoTime();
        say("\"began_ns\":%d,\"first_ns\":%d,\"end_ns\":%d", beganNs, firstNs, end);
    }

    private void await(BooleanSupplier condition) {
        long deadline = System.nanoTime() + PATIENCE_NS;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited too long; the log ends at " + store.getMaxPhyOffset());
            }
            LockSupport.parkNanos(END_POLL_NS);
        }
    }

    void say(String format, Object... values) {
        out.println("{" + String.format(Locale.ROOT, format, values) + "}");
    }
}
