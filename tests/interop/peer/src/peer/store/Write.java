package peer.store;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtEncoder;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;
import org.apache.rocketmq.store.logfile.MappedFile;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import peer.Options;

/** {@code write}: fills a fresh real store by a spec, then describes each message in a manifest. */
final class Write {
    private static final int BLANK_RESERVE = 8;
    private static final long DISPATCH_TIMEOUT = 60_000;

    private final Spec spec;
    private final CaseDir dir;
    private final DefaultMessageStore store;
    private final Generator generator;
    /** What was handed to the store, by physical offset, to hold the manifest against. */
    private final Map<Long, Sent> sent = new HashMap<>();
    private EpochFileCache epochs;

    private record Sent(String topic, byte[] stored, byte[] plain) {
    }

    private Write(Spec spec, CaseDir dir, DefaultMessageStore store) {
        this.spec = spec;
        this.dir = dir;
        this.store = store;
        this.generator = new Generator(spec.seed(), spec.topics());
    }

    static int run(Options options) throws Exception {
        Spec spec = Spec.read(options.path("spec"));
        CaseDir dir = CaseDir.create(options.path("dir"));
        Files.copy(options.path("spec"), dir.spec());

        DefaultMessageStore store = Stores.start(dir.store(), spec, Map.of());
        Write write = new Write(spec, dir, store);
        for (int i = 0; i < spec.steps().size(); i++) {
            write.step(spec.steps().getJSONObject(i));
        }
        if (!Stores.awaitDispatch(store, DISPATCH_TIMEOUT)) {
            throw new IllegalStateException("dispatch did not catch up");
        }
        boolean crash = options.has("crash");
        if (!crash) {
            Stores.flush(store);
        }
        List<JSONObject> lines = write.manifest();
        Manifest.write(dir.manifest(), lines);
        System.out.println(new JSONObject()
            .fluentPut("messages", lines.size())
            .fluentPut("minPhyOffset", store.getMinPhyOffset())
            .fluentPut("maxPhyOffset", store.getMaxPhyOffset()));
        if (!crash) {
            store.shutdown();
        }
        return 0; // after a crash the caller halts the JVM, so the abort file stays behind
    }

    private void step(JSONObject step) throws Exception {
        int count = step.getIntValue("count", 1);
        switch (step.getString("kind")) {
            case "pause" -> Thread.sleep(step.getLongValue("millis"));
            case "deleteFiles" -> deleteFiles(count);
            case "epoch" -> appendEpoch(step.getIntValue("epoch"));
            case "masterFlushed" -> {
                store.setMasterFlushedOffset(store.getMaxPhyOffset());
                store.getStoreCheckpoint().flush();
            }
            default -> {
                for (int i = 0; i < count; i++) {
                    message(step);
                }
            }
        }
    }

    private void message(JSONObject step) {
        switch (step.getString("kind")) {
            case "normal" -> put(generator.make(step));
            case "delay" -> put(delayed(step));
            case "transaction" -> transaction(step);
            case "lmq" -> put(multiDispatch(step));
            case "batch" -> batch(step);
            case "innerBatch" -> innerBatch(step);
            case "exact" -> exact(step);
            default -> throw new IllegalArgumentException("unknown step kind " + step.getString("kind"));
        }
    }

    private long put(Generator.Made made) {
        PutMessageResult result = store.putMessage(made.message());
        requireOk(result);
        long position = result.getAppendMessageResult().getWroteOffset();
        sent.put(position, new Sent(made.message().getTopic(), made.message().getBody(), made.plain()));
        return position;
    }

    private static void requireOk(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("put refused: " + result.getPutMessageStatus()
                + " " + result.getAppendMessageResult());
        }
    }

    /** What a broker does with a delay level before storing: real target into properties, schedule topic in its place. */
    private Generator.Made delayed(JSONObject step) {
        Generator.Made made = generator.make(step);
        MessageExtBrokerInner message = made.message();
        int level = generator.between(step, "levels", 1, 18);
        message.setDelayTimeLevel(level);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(level - 1);
        Generator.seal(message);
        return made;
    }

    /**
     * Half message and its end. In the "broker" style the half message waits in the system topic and an op message
     * closes it; in the "flags" style prepared and rolled back records carry their state in sysFlag and stay out of
     * consume queues.
     */
    private void transaction(JSONObject step) {
        boolean broker = !"flags".equals(generator.pick(step.getJSONArray("style"), "broker"));
        boolean commit = generator.below(3) > 0;
        Generator.Made half = generator.make(step);
        MessageExtBrokerInner message = half.message();
        String topic = message.getTopic();
        int queueId = message.getQueueId();
        int sysFlag = message.getSysFlag();
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_PRODUCER_GROUP, "PG");
        if (broker) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, topic);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(queueId));
            message.setTopic(TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC);
            message.setQueueId(0);
        } else {
            message.setSysFlag(MessageSysFlag.resetTransactionValue(sysFlag, MessageSysFlag.TRANSACTION_PREPARED_TYPE));
        }
        Generator.seal(message);
        long position = put(half);
        long halfQueueOffset = message.getQueueOffset();

        if (commit || !broker) {
            message.setTopic(topic);
            message.setQueueId(queueId);
            message.setSysFlag(MessageSysFlag.resetTransactionValue(sysFlag,
                commit ? MessageSysFlag.TRANSACTION_COMMIT_TYPE : MessageSysFlag.TRANSACTION_ROLLBACK_TYPE));
            message.setPreparedTransactionOffset(position);
            message.setQueueOffset(halfQueueOffset);
            MessageAccessor.clearProperty(message, MessageConst.PROPERTY_REAL_TOPIC);
            MessageAccessor.clearProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID);
            Generator.seal(message);
            put(half);
        }
        if (broker) {
            MessageExtBrokerInner op = new MessageExtBrokerInner();
            op.setTopic(TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC);
            op.setQueueId(0);
            op.setTags("d");
            op.setBornTimestamp(message.getBornTimestamp());
            op.setBornHost(message.getStoreHost());
            op.setStoreHost(message.getStoreHost());
            op.setBody((halfQueueOffset + ",").getBytes(StandardCharsets.UTF_8));
            put(new Generator.Made(Generator.seal(op), op.getBody()));
        }
    }

    private Generator.Made multiDispatch(JSONObject step) {
        Generator.Made made = generator.make(step);
        JSONArray names = step.getJSONArray("lmq");
        List<String> chosen = new ArrayList<>();
        int first = generator.below(names.size());
        int fanout = generator.between(step, "fanout", 1, 1);
        for (int i = 0; i < fanout; i++) {
            chosen.add("%LMQ%" + names.getString((first + i) % names.size()));
        }
        MessageAccessor.putProperty(made.message(), MessageConst.PROPERTY_INNER_MULTI_DISPATCH, String.join(",", chosen));
        Generator.seal(made.message());
        return made;
    }

    private List<Message> members(JSONObject step, String topic) {
        List<Message> out = new ArrayList<>();
        int size = generator.between(step, "size", 2, 8);
        for (int i = 0; i < size; i++) {
            Message member = new Message(topic, generator.body(step, generator.between(step, "body", 0, 512)));
            member.setFlag(generator.below(3));
            generator.fillProperties(member, step);
            out.add(member);
        }
        return out;
    }

    private void batch(JSONObject step) {
        MessageExtBatch batch = new MessageExtBatch();
        generator.fillHeader(batch, step);
        List<Message> members = members(step, batch.getTopic());
        if (step.getBooleanValue("batchProperties")) {
            batch.putUserProperty("batch", "of " + members.size());
        }
        batch.setBody(MessageDecoder.encodeMessages(members));
        PutMessageResult result = store.putMessages(batch);
        requireOk(result);
        String[] ids = result.getAppendMessageResult().getMsgId().split(",");
        for (int i = 0; i < ids.length; i++) {
            long position = Long.parseLong(ids[i].substring(ids[i].length() - 16), 16);
            byte[] body = members.get(i).getBody();
            sent.put(position, new Sent(batch.getTopic(), body, body));
        }
    }

    /** One record that holds several messages in its body; the target topic must have queueType BatchCQ. */
    private void innerBatch(JSONObject step) {
        Generator.Made made = generator.make(step);
        MessageExtBrokerInner message = made.message();
        List<Message> members = members(step, message.getTopic());
        message.setBody(MessageDecoder.encodeMessages(members));
        message.setSysFlag(message.getSysFlag() | MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_NUM, String.valueOf(members.size()));
        Generator.seal(message);
        put(new Generator.Made(message, message.getBody()));
    }

    /** A record that ends {@code slack} bytes before the last place a record may end, or has the largest legal body. */
    private void exact(JSONObject step) {
        Generator.Made made = generator.make(step);
        MessageExtBrokerInner message = made.message();
        int length;
        if ("maxBody".equals(step.getString("target"))) {
            length = store.getMessageStoreConfig().getMaxMessageSize();
        } else {
            MappedFile last = store.getCommitLog().getMappedFileQueue().getLastMappedFile();
            int free = last.getFileSize() - last.getWrotePosition();
            length = free - BLANK_RESERVE - overhead(message) - step.getIntValue("slack", 0);
            if (length < 0) {
                throw new IllegalStateException("too little room left in the file for an exact fit: " + free);
            }
        }
        byte[] body = generator.body(step, length);
        message.setBody(body);
        put(new Generator.Made(message, body));
    }

    private static int overhead(MessageExtBrokerInner message) {
        byte[] topic = message.getTopic().getBytes(StandardCharsets.UTF_8);
        byte[] properties = message.getPropertiesString().getBytes(StandardCharsets.UTF_8);
        MessageVersion version = topic.length > Byte.MAX_VALUE
            ? MessageVersion.MESSAGE_VERSION_V2 : MessageVersion.MESSAGE_VERSION_V1;
        return MessageExtEncoder.calMsgLength(version, message.getSysFlag(), 0, topic.length, properties.length);
    }

    private void deleteFiles(int count) throws Exception {
        Stores.awaitDispatch(store, DISPATCH_TIMEOUT);
        Stores.flush(store);
        store.getCommitLog().deleteExpiredFile(0, 0, 0, true, count);
        for (ConsumeQueueInterface queue : new StoreReader(store).queues()) {
            queue.deleteExpiredFile(store.getMinPhyOffset());
        }
    }

    private void appendEpoch(int epoch) {
        if (epochs == null) {
            epochs = new EpochFileCache(dir.epochs().toString());
        }
        if (!epochs.appendEntry(new EpochEntry(epoch, store.getMaxPhyOffset()))) {
            throw new IllegalStateException("epoch " + epoch + " refused");
        }
    }

    /** Reads everything back through the store and checks it against what was sent. */
    private List<JSONObject> manifest() {
        StoreReader reader = new StoreReader(store);
        Map<Long, List<StoreReader.Entry>> entries = reader.entriesByPosition();
        List<JSONObject> lines = new ArrayList<>();
        reader.eachRecord(record -> {
            JSONObject line = Manifest.line(record, entries);
            long position = line.getLongValue("phyOffset");
            Sent original = sent.get(position);
            if (original == null || !original.topic().equals(line.getString("topic"))
                || !Records.sha256(original.stored()).equals(line.getString("bodySha256"))) {
                throw new IllegalStateException("the record at " + position + " is not what was put");
            }
            if (original.plain().length != original.stored().length) {
                line.put("plainLength", original.plain().length);
                line.put("plainSha256", Records.sha256(original.plain()));
            }
            lines.add(line);
        });
        long kept = sent.keySet().stream().filter(position -> position >= store.getMinPhyOffset()).count();
        if (lines.size() != kept) {
            throw new IllegalStateException(lines.size() + " records found, " + kept + " put");
        }
        return lines;
    }
}
