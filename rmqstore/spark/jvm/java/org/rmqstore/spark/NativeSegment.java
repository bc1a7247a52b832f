package org.rmqstore.spark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The binding of csrc/jni/segment_jni.c: records of one commit log file out of its bytes.
 *
 * <p>A handle belongs to one thread at a time and is closed once. Buffers are direct, and the caller
 * keeps them until it hands over the next ones.
 */
public final class NativeSegment {
    static final int FULL = 0;
    static final int MORE = 1;
    static final int TOPIC = 2;
    static final int CORRUPT = 3;
    static final int OVER = 4;
    static final int FOUND = 5;

    static final int ENDING_UNWRITTEN = 3;

    static final int CHECK_CRC = 1;
    static final int DISPATCHED_ONLY = 2;
    static final int BY_TOPIC = 4;
    static final int SUMS_BY_TAG = 8;

    /** Indexes of the results of a step. */
    static final int OFFSET = 0;

    static final int NEEDED = 1;
    static final int ENDING = 2;
    static final int ROWS = 3;
    static final int FACTS = 4;

    /** More than the numbers of any batch. */
    static final int PLACES = 512;

    private static final AtomicLong HELD = new AtomicLong();

    static {
        load();
    }

    private NativeSegment() {}

    /** How many segments and batches are held outside of the heap: 0 while no task reads. */
    public static long held() {
        return HELD.get();
    }

    static long opened(
            String[] columns, long[] numbers, int flags, byte[][] tags, byte[][] keys,
            int[] sysFlags) {
        long handle = open(columns, numbers, flags, tags, keys, sysFlags);
        HELD.incrementAndGet();
        return handle;
    }

    static void closed(long handle) {
        HELD.decrementAndGet();
        close(handle);
    }

    /** Returns the rows so far; the batch is the first of {@code places}. */
    static long taken(long handle, long[] places) {
        long rows = take(handle, places);
        HELD.incrementAndGet();
        return rows;
    }

    static void released(long batch) {
        HELD.decrementAndGet();
        release(batch);
    }

    private static native long open(
            String[] columns, long[] numbers, int flags, byte[][] tags, byte[][] keys,
            int[] sysFlags);

    private static native void close(long handle);

    private static native long take(long handle, long[] places);

    private static native void release(long batch);

    static native void feed(long handle, ByteBuffer bytes, int size, long at);

    static native void visit(long handle, ByteBuffer positions, int count);

    static native void choose(long handle, byte[] topic, long[] ranges);

    /** Adds rows to the batch, or messages to the sums of a segment without columns. */
    static native int fill(long handle, long[] facts);

    /** Topic and tag, null for none, of each sum. */
    static native byte[][] groups(long handle);

    static native long[] sums(long handle);

    static native int resync(long handle, long[] facts);

    static native byte[] topic(long handle);

    static native byte[] error(long handle);

    static native int unitPositions(
            ByteBuffer units, int count, long start, long stop, ByteBuffer out);

    private static native String version();

    /** The release that this jar belongs to. */
    static String release() {
        return text("release.txt");
    }

    private static void load() {
        String name = "native/" + platform() + "/librmqstore_spark.so";
        try (InputStream library = NativeSegment.class.getResourceAsStream("/" + name)) {
            if (library == null) {
                throw new UnsatisfiedLinkError(
                        "the jar of rmqstore has no library for " + platform()
                                + "; set option(\"reader\", \"python\")");
            }
            // Of its own for each class loader, and gone from the folder once it is loaded.
            Path copy = Files.createTempFile("rmqstore-spark-", ".so");
            try {
                Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
                System.load(copy.toString());
            } finally {
                Files.delete(copy);
            }
        } catch (IOException error) {
            throw new UnsatisfiedLinkError("the library of rmqstore cannot be unpacked: " + error);
        }
        if (!version().equals(release())) {
            throw new UnsatisfiedLinkError(
                    "the jar of rmqstore is of release " + release() + ", its library of "
                            + version() + "; install rmqstore again");
        }
    }

    private static String platform() {
        return System.getProperty("os.name").toLowerCase(java.util.Locale.ROOT) + "-"
                + System.getProperty("os.arch");
    }

    private static String text(String name) {
        try (InputStream in = NativeSegment.class.getResourceAsStream(name)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8).strip();
        } catch (IOException error) {
            throw new IllegalStateException("the jar of rmqstore lacks " + name, error);
        }
    }
}
