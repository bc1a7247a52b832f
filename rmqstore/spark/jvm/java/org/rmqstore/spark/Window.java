package org.rmqstore.spark;

import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** The bytes of one file as a segment needs them, read ahead into one buffer. */
final class Window implements AutoCloseable {
    private final Plan.Split split;
    private final Plan.Reading reading;
    private final Texts texts;
    private final RecordOffsets offsets;
    private final FileChannel file;
    private ByteBuffer buffer;
    private boolean isCut;

    /** offsets: null where all of the split is read. */
    Window(Plan.Split split, Plan.Reading reading, Texts texts, RecordOffsets offsets) {
        this.split = split;
        this.reading = reading;
        this.texts = texts;
        this.offsets = offsets;
        file = StoreFiles.open(split.path(), texts);
    }

    /** Whether the file ended before a record that should be in it. */
    boolean isCut() {
        return isCut;
    }

    /** Feeds what the segment needs and what it will need soon; false: the file is too short. */
    boolean feed(long segment, long[] facts) {
        long at = facts[NativeSegment.OFFSET];
        long needed = Math.min(facts[NativeSegment.NEEDED], split.reach() - at);
        int size = (int) readSize(at, needed);
        int got = 0;
        if (size > 0) {
            ByteBuffer into = buffer != null && buffer.capacity() >= size
                    ? buffer
                    : ByteBuffer.allocateDirect(size);
            got = StoreFiles.read(file, split.path(), into, size, at - split.fileStart(), texts);
            isCut = needed <= 0 || got < needed;
            if (!isCut) {
                NativeSegment.feed(segment, into, got, at);
            }
            if (into != buffer) {
                StoreFiles.free(buffer);
                buffer = into;
            }
            return !isCut;
        }
        isCut = true;
        return false;
    }

    /** Returns what is wrong where the segment stopped, with the file's name and the cures. */
    String error(byte[] detail, long at) {
        String what;
        if (isCut) {
            what = texts.of("cut", "offset", at);
        } else if (detail != null) {
            what = new String(detail, java.nio.charset.StandardCharsets.UTF_8);
        } else {
            what = texts.of("unwritten", "offset", at);
        }
        return texts.of(
                "damage", "path", split.path(), "what", what, "byte", at - split.fileStart());
    }

    /** Returns the size of damage after which reading continues at {@code end}. */
    long damagedBytes(long start, long end) {
        return offsets != null ? offsets.sizeAt(start) : Math.max(end - start, 0);
    }

    @Override
    public void close() {
        StoreFiles.free(buffer);
        buffer = null;
        StoreFiles.close(file, split.path(), texts);
    }

    private long readSize(long at, long needed) {
        long end = offsets == null
                ? split.stop()
                : offsets.lastBeforeGap(at) + reading.recordBytes();
        long wanted = Math.max(Math.min(reading.windowBytes(), end - at), needed);
        return Math.min(wanted, split.reach() - at);
    }
}
