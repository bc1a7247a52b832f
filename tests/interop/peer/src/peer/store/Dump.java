package peer.store;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import peer.Options;

/** {@code dump}: opens a store directory with the real store, prints what it sees and judges it. */
final class Dump {
    private static final long DISPATCH_TIMEOUT = 60_000;
    /** The store caps an index query at this many hits. */
    private static final int INDEX_QUERY_LIMIT = 64;
    private static final int SHOWN_FAULTS = 50;

    private final boolean quiet;
    private DefaultMessageStore store;
    private final List<String> faults = new ArrayList<>();
    private long faultCount;

    private Dump(boolean quiet) {
        this.quiet = quiet;
    }

    static int run(Options options) throws Exception {
        CaseDir given = CaseDir.existing(options.path("dir"));
        Spec spec = Spec.find(options, given);
        Dump dump = new Dump(options.has("quiet"));
        if (options.has("in-place")) {
            return dump.dump(given, spec, options);
        }
        Path copy = Files.createTempDirectory("peer-store-dump");
        try {
            return dump.dump(given.copyTo(copy.resolve("case")), spec, options);
        } finally {
            // Takes seconds, and the verdict is there: nobody waits for it.
            Thread end = new Thread(() -> dump.end(copy), "end of a dump");
            end.setDaemon(true);
            end.start();
        }
    }

    private void end(Path copy) {
        if (store != null) {
            store.shutdown();
        }
        try {
            CaseDir.deleteTree(copy);
        } catch (IOException e) {
            e.printStackTrace();
        }
    }

    private int dump(CaseDir dir, Spec spec, Options options) throws Exception {
        printEpochs(dir);
        printCheckpoint(dir);
        boolean abort = Files.exists(dir.abort());
        store = Stores.open(dir.store(), spec, options.storeSettings());
        boolean loaded = store.load();
        Map<Long, JSONObject> messages = new TreeMap<>();
        if (loaded) {
            store.start();
            if (!Stores.awaitDispatch(store, DISPATCH_TIMEOUT)) {
                fault("dispatch stays " + store.dispatchBehindBytes() + " bytes behind");
            }
            readQueues(store, messages);
            printStore(store, abort);
            if (options.has("keys")) {
                queryIndex(store, messages);
            }
            if (options.text("manifest", null) != null) {
                compare(messages, Manifest.read(options.path("manifest")), store);
            }
            if (options.has("probe")) {
                probe(store);
            }
        } else {
            fault("load() returned false");
        }
        verdict(loaded, messages.size());
        if (loaded && options.has("in-place")) {
            store.shutdown();
        }
        return faultCount == 0 ? 0 : 1;
    }

    private void readQueues(DefaultMessageStore store, Map<Long, JSONObject> messages) {
        StoreReader reader = new StoreReader(store);
        Map<Long, List<StoreReader.Entry>> byPosition = new TreeMap<>();
        for (ConsumeQueueInterface queue : reader.queues()) {
            // A queue may keep entries of deleted log files: its last file stays, and after a restart its first one too.
            long expired = 0;
            try {
                for (StoreReader.Entry entry : reader.entries(queue)) {
                    if (entry.phyOffset() < store.getMinPhyOffset()) {
                        expired++;
                    } else {
                        byPosition.computeIfAbsent(entry.phyOffset(), k -> new ArrayList<>()).add(entry);
                    }
                }
            } catch (IllegalStateException e) {
                fault(e.getMessage());
            }
            JSONObject line = new JSONObject();
            line.put("type", "queue");
            line.put("topic", queue.getTopic());
            line.put("queueId", queue.getQueueId());
            line.put("queueType", queue.getCQType().name());
            line.put("minOffset", queue.getMinOffsetInQueue());
            line.put("maxOffset", queue.getMaxOffsetInQueue());
            line.put("expiredEntries", expired);
            print(line);
        }
        byPosition.forEach((position, entries) -> {
            JSONObject message = resolve(store, entries, byPosition);
            if (message != null) {
                messages.put(position, message);
                JSONObject line = new JSONObject();
                line.put("type", "message");
                line.putAll(message);
                print(line);
            }
        });
    }

    /** Reads the record that the entries point at; notes every way in which they disagree. */
    private JSONObject resolve(DefaultMessageStore store, List<StoreReader.Entry> entries,
        Map<Long, List<StoreReader.Entry>> byPosition) {
        StoreReader.Entry first = entries.get(0);
        String where = first.topic() + "-" + first.queueId() + "@" + first.offset();
        SelectMappedBufferResult found = store.selectOneMessageByOffset(first.phyOffset(), first.size());
        if (found == null) {
            fault(where + " points at " + first.phyOffset() + ", outside the commit log");
            return null;
        }
        try {
            ByteBuffer record = found.getByteBuffer();
            if (Records.describe(record) == null) {
                fault(where + ": the record at " + first.phyOffset() + " does not decode");
                return null;
            }
            String bad = Records.checksumFault(record);
            if (bad != null) {
                fault(where + ": " + bad + " at " + first.phyOffset());
            }
            JSONObject message = Manifest.line(record, byPosition);
            for (StoreReader.Entry entry : entries) {
                checkEntry(entry, message);
            }
            return message;
        } finally {
            found.release();
        }
    }

    private void checkEntry(StoreReader.Entry entry, JSONObject message) {
        String where = entry.topic() + "-" + entry.queueId() + "@" + entry.offset();
        if (entry.phyOffset() != message.getLongValue("phyOffset") || entry.size() != message.getIntValue("size")) {
            fault(where + ": position or size differs from the record");
        }
        boolean ownQueue = entry.topic().equals(message.getString("topic"));
        if (ownQueue && (entry.queueId() != message.getIntValue("queueId")
            || entry.offset() != message.getLongValue("queueOffset"))) {
            fault(where + ": queue id or queue offset differs from the record");
        }
        String tags = message.getString("tags");
        boolean scheduled = entry.topic().equals(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        long expected = tags == null || tags.isEmpty() ? 0 : MessageExtBrokerInner.tagsString2tagsCode(tags);
        if (!scheduled && entry.tagsCode() != expected) {
            fault(where + ": tags code " + entry.tagsCode() + ", expected " + expected);
        }
    }

    private void queryIndex(DefaultMessageStore store, Map<Long, JSONObject> messages) {
        Map<String, Map<String, List<Long>>> expected = new TreeMap<>();
        messages.forEach((position, message) -> {
            String topic = message.getString("topic");
            JSONObject properties = message.getJSONObject("properties");
            if (MessageSysFlag.getTransactionValue(message.getIntValue("sysFlag"))
                == MessageSysFlag.TRANSACTION_ROLLBACK_TYPE) {
                return;
            }
            List<String> keys = new ArrayList<>();
            String unique = properties.getString(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
            if (unique != null) {
                keys.add(unique);
            }
            String list = message.getString("keys");
            if (list != null && !list.isBlank()) {
                keys.addAll(List.of(list.trim().split(MessageConst.KEY_SEPARATOR)));
            }
            for (String key : keys) {
                expected.computeIfAbsent(topic, k -> new TreeMap<>())
                    .computeIfAbsent(key, k -> new ArrayList<>()).add(position);
            }
        });
        expected.forEach((topic, byKey) -> byKey.forEach((key, positions) -> {
            List<Long> hits = query(store, topic, key);
            JSONObject line = new JSONObject();
            line.put("type", "index");
            line.put("topic", topic);
            line.put("key", key);
            line.put("phyOffsets", hits);
            print(line);
            if (positions.size() < INDEX_QUERY_LIMIT && !hits.containsAll(positions)) {
                fault("index query " + topic + "#" + key + " finds " + hits + ", not all of " + positions);
            }
        }));
    }

    private static List<Long> query(DefaultMessageStore store, String topic, String key) {
        QueryMessageResult result = store.queryMessage(topic, key, INDEX_QUERY_LIMIT, 0, Long.MAX_VALUE);
        List<Long> hits = new ArrayList<>();
        for (SelectMappedBufferResult found : result.getMessageMapedList()) {
            hits.add(Records.describe(found.getByteBuffer()).getLong("phyOffset"));
            found.release();
        }
        return hits.stream().distinct().sorted().toList();
    }

    /** Holds the messages seen against a manifest. From the first damaged record on, losses are counted, not faulted. */
    private void compare(Map<Long, JSONObject> seen, List<JSONObject> manifest, DefaultMessageStore store) {
        long matched = 0;
        long lost = 0;
        long undispatched = 0;
        boolean damaged = false;
        Map<Long, JSONObject> unexplained = new LinkedHashMap<>(seen);
        for (JSONObject line : manifest) {
            long position = line.getLongValue("phyOffset");
            damaged |= line.getBooleanValue("damaged");
            JSONObject found = unexplained.remove(position);
            if (line.getJSONArray("consumeQueues").isEmpty()) {
                undispatched++;
                if (found != null) {
                    fault("the record at " + position + " should be in no consume queue");
                }
            } else if (found != null && Manifest.comparable(found).equals(Manifest.comparable(line))) {
                matched++;
            } else if (damaged) {
                lost++;
            } else {
                fault("the record at " + position + (found == null ? " is missing" : " differs from the manifest"));
            }
        }
        unexplained.keySet().forEach(position -> fault("the record at " + position + " is not in the manifest"));
        JSONObject line = new JSONObject();
        line.put("type", "manifest");
        line.put("lines", manifest.size());
        line.put("matched", matched);
        line.put("undispatched", undispatched);
        line.put("lost", lost);
        print(line);
    }

    /** Puts one more message into every simple queue: it must get the next queue offset and be readable. */
    private void probe(DefaultMessageStore store) throws Exception {
        Generator generator = new Generator(0, Map.of("probe", new JSONObject()));
        long end = store.getMaxPhyOffset();
        int count = 0;
        for (ConsumeQueueInterface queue : new StoreReader(store).queues()) {
            if (!(queue instanceof ConsumeQueue) || queue.getTopic().startsWith("%LMQ%")) {
                continue;
            }
            long expected = queue.getMaxOffsetInQueue();
            MessageExtBrokerInner message = generator.make(new JSONObject()).message();
            message.setTopic(queue.getTopic());
            message.setQueueId(queue.getQueueId());
            PutMessageResult result = store.putMessage(message);
            if (!result.isOk()) {
                fault("probe of " + queue.getTopic() + "-" + queue.getQueueId() + ": " + result.getPutMessageStatus());
                continue;
            }
            if (count++ == 0 && result.getAppendMessageResult().getWroteOffset() < end) {
                fault("probe written at " + result.getAppendMessageResult().getWroteOffset() + ", log ended at " + end);
            }
            Stores.awaitDispatch(store, DISPATCH_TIMEOUT);
            long offset = result.getAppendMessageResult().getLogicsOffset();
            if (offset != expected || queue.getMaxOffsetInQueue() != expected + 1) {
                fault("probe of " + queue.getTopic() + "-" + queue.getQueueId() + ": offset " + offset
                    + ", expected " + expected);
            }
        }
        JSONObject line = new JSONObject();
        line.put("type", "probe");
        line.put("queues", count);
        print(line);
    }

    private void printStore(DefaultMessageStore store, boolean abort) {
        JSONObject line = new JSONObject();
        line.put("type", "store");
        line.put("abortFile", abort);
        line.put("minPhyOffset", store.getMinPhyOffset());
        line.put("maxPhyOffset", store.getMaxPhyOffset());
        line.put("confirmOffset", store.getConfirmOffset());
        line.put("flushedOffset", store.getFlushedWhere());
        print(line);
    }

    private void printCheckpoint(CaseDir dir) throws IOException {
        if (!Files.exists(dir.checkpoint())) {
            return;
        }
        StoreCheckpoint checkpoint = new StoreCheckpoint(dir.checkpoint().toString());
        JSONObject line = new JSONObject();
        line.put("type", "checkpoint");
        line.put("physicMsgTimestamp", checkpoint.getPhysicMsgTimestamp());
        line.put("logicsMsgTimestamp", checkpoint.getLogicsMsgTimestamp());
        line.put("indexMsgTimestamp", checkpoint.getIndexMsgTimestamp());
        line.put("masterFlushedOffset", checkpoint.getMasterFlushedOffset());
        line.put("confirmPhyOffset", checkpoint.getConfirmPhyOffset());
        print(line);
    }

    private void printEpochs(CaseDir dir) {
        if (!Files.exists(dir.epochs())) {
            return;
        }
        EpochFileCache cache = new EpochFileCache(dir.epochs().toString());
        if (!cache.initCacheFromFile()) {
            fault("the epoch file does not read");
            return;
        }
        JSONArray entries = new JSONArray();
        for (EpochEntry entry : cache.getAllEntries()) {
            entries.add(new JSONObject()
                .fluentPut("epoch", entry.getEpoch())
                .fluentPut("startOffset", entry.getStartOffset()));
        }
        print(new JSONObject().fluentPut("type", "epochs").fluentPut("entries", entries));
    }

    private void verdict(boolean loaded, int messages) {
        JSONObject line = new JSONObject();
        line.put("type", "verdict");
        line.put("ok", faultCount == 0);
        line.put("loaded", loaded);
        line.put("messages", messages);
        line.put("faults", faultCount);
        line.put("firstFaults", faults);
        System.out.println(Manifest.text(line));
    }

    private void fault(String text) {
        faultCount++;
        if (faults.size() < SHOWN_FAULTS) {
            faults.add(text);
        }
    }

    private void print(JSONObject line) {
        if (!quiet) {
            System.out.println(Manifest.text(line));
        }
    }
}
