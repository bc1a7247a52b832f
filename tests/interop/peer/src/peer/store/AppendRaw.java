package peer.store;

import com.alibaba.fastjson2.JSONObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import peer.Options;

/**
 * {@code append-raw}: feeds another store's commit log bytes to a fresh real store the way a slave receives them,
 * so that the consume queues and index it builds can be compared.
 */
final class AppendRaw {
    private static final long DISPATCH_TIMEOUT = 60_000;

    private AppendRaw() {
    }

    static int run(Options options) throws Exception {
        CaseDir from = CaseDir.existing(options.path("from"));
        Spec spec = Spec.find(options, from);
        CaseDir dir = CaseDir.create(options.path("dir"));
        Path specFile = options.text("spec", null) != null ? options.path("spec") : from.spec();
        if (Files.exists(specFile)) {
            Files.copy(specFile, dir.spec());
        }
        List<Path> files = logFiles(from.store());
        int fileSize = (int) Files.size(files.get(0));

        // A slave keeps a nonzero broker id: only then does its dispatcher wait at a record that is not whole yet.
        spec.json.putIfAbsent("broker", new JSONObject());
        spec.json.getJSONObject("broker").putIfAbsent("brokerId", "1");
        Map<String, String> extra = new HashMap<>(options.storeSettings());
        extra.putIfAbsent("brokerRole", "SLAVE");
        extra.putIfAbsent("mappedFileSizeCommitLog", String.valueOf(fileSize));
        DefaultMessageStore store = Stores.start(dir.store(), spec, extra);

        int chunk = options.number("chunk", store.getMessageStoreConfig().getHaTransferBatchSize());
        long position = Long.parseLong(files.get(0).getFileName().toString());
        for (Path file : files) {
            byte[] bytes = Files.readAllBytes(file);
            int end = usedBytes(bytes);
            for (int at = 0; at < end; at += chunk) {
                int length = Math.min(chunk, end - at);
                if (!store.appendToCommitLog(position, bytes, at, length)) {
                    throw new IOException("append refused at " + position);
                }
                position += length;
            }
            if (end < fileSize) {
                break;
            }
        }
        boolean caughtUp = Stores.awaitDispatch(store, DISPATCH_TIMEOUT);
        System.out.println(new JSONObject()
            .fluentPut("appendedUpTo", position)
            .fluentPut("maxPhyOffset", store.getMaxPhyOffset())
            .fluentPut("dispatchBehind", store.dispatchBehindBytes())
            .fluentPut("ok", caughtUp));
        store.shutdown();
        return caughtUp ? 0 : 1;
    }

    /** Bytes up to the end of the last whole record; the whole file if it was closed by a blank record. */
    private static int usedBytes(byte[] bytes) {
        ByteBuffer data = ByteBuffer.wrap(bytes);
        int at = 0;
        while (at + 8 <= bytes.length) {
            int size = data.getInt(at);
            int magic = data.getInt(at + 4);
            if (magic == CommitLog.BLANK_MAGIC_CODE) {
                return bytes.length;
            }
            boolean message = magic == MessageDecoder.MESSAGE_MAGIC_CODE || magic == MessageDecoder.MESSAGE_MAGIC_CODE_V2;
            if (!message || size <= 0 || at + size > bytes.length) {
                break;
            }
            at += size;
        }
        return at;
    }

    /** Log files of all paths below the store root whose name starts with "commitlog", in offset order. */
    private static List<Path> logFiles(Path root) throws IOException {
        try (Stream<Path> files = Files.walk(root, 2)) {
            List<Path> found = files
                .filter(p -> p.getFileName().toString().matches("[0-9]{20}")
                    && p.getParent().getFileName().toString().startsWith("commitlog"))
                .sorted((a, b) -> a.getFileName().compareTo(b.getFileName()))
                .toList();
            if (found.isEmpty()) {
                throw new IllegalArgumentException("no commit log files below " + root);
            }
            return found;
        }
    }
}
