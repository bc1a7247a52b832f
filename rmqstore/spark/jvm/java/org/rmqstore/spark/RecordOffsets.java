package org.rmqstore.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.util.Arrays;

/**
 * The physical offsets that queue units name within a split, ascending, and how far a read from one
 * of them should go. Holds direct memory until it is closed.
 */
final class RecordOffsets implements AutoCloseable {
    private static final int UNIT_BYTES = 20;
    private static final int READ_BYTES = 1 << 20;

    private final Plan.Split split;
    private final Plan.Reading reading;
    private final Texts texts;
    private final ByteBuffer positions;
    private long[] offsets = new long[1024];
    private int count;

    RecordOffsets(Plan.Split split, Plan.Reading reading, Texts texts) {
        this.split = split;
        this.reading = reading;
        this.texts = texts;
        for (Plan.Units units : split.units()) {
            readUnits(units, this::addPositions);
        }
        sort();
        positions = ByteBuffer.allocateDirect(Math.max(count, 1) * Long.BYTES);
        positions.order(ByteOrder.nativeOrder()).asLongBuffer().put(offsets, 0, count);
    }

    int count() {
        return count;
    }

    /** As numbers of this machine's order. */
    ByteBuffer positions() {
        return positions;
    }

    /** Returns the last offset from {@code at} on before a wide gap. */
    long lastBeforeGap(long at) {
        int found = Arrays.binarySearch(offsets, 0, count, at);
        int index = found < 0 ? -found - 1 : found;
        while (index < count - 1 && offsets[index + 1] - offsets[index] <= reading.gapBytes()) {
            ++index;
        }
        return offsets[Math.min(index, count - 1)];
    }

    /** Returns the size of the record at {@code offset} by its unit, 0 without one. */
    long sizeAt(long offset) {
        long[] found = {0};
        for (Plan.Units units : split.units()) {
            readUnits(units, (bytes, each, size) -> {
                for (int i = 0; i < each; i++) {
                    if (bytes.getLong(i * size) == offset) {
                        found[0] = bytes.getInt(i * size + Long.BYTES);
                    }
                }
            });
        }
        return found[0];
    }

    @Override
    public void close() {
        StoreFiles.free(positions);
    }

    private interface Visitor {
        void visit(ByteBuffer units, int count, int unitSize);
    }

    private void readUnits(Plan.Units units, Visitor visitor) {
        int unitSize = units.unitSize();
        long at = units.first() * unitSize;
        long stop = units.stop() * unitSize;
        ByteBuffer bytes = ByteBuffer.allocateDirect(READ_BYTES / unitSize * unitSize);
        try {
            while (at < stop) {
                long start = at - at % units.fileSize();
                String path = units.path() + String.format("/%020d", start);
                FileChannel file = StoreFiles.open(path, texts);
                try {
                    long fileStop = Math.min(stop, start + units.fileSize());
                    while (at < fileStop) {
                        int size = (int) Math.min(bytes.capacity(), fileStop - at);
                        if (StoreFiles.read(file, path, bytes, size, at - start, texts) < size) {
                            throw new StoreException(
                                    StoreException.NOT_FOUND,
                                    texts.of("shortUnits", "path", path, "unit", at / unitSize));
                        }
                        visitor.visit(bytes, size / unitSize, unitSize);
                        at += size;
                    }
                } finally {
                    StoreFiles.close(file, path, texts);
                }
            }
        } finally {
            StoreFiles.free(bytes);
        }
    }

    private void addPositions(ByteBuffer units, int unitCount, int unitSize) {
        if (offsets.length < count + unitCount) {
            offsets = Arrays.copyOf(offsets, Math.max(2 * offsets.length, count + unitCount));
        }
        if (unitSize != UNIT_BYTES) {
            for (int i = 0; i < unitCount; i++) {
                long offset = units.getLong(i * unitSize);
                if (offset >= split.start() && offset < split.stop()) {
                    offsets[count++] = offset;
                }
            }
            return;
        }

        ByteBuffer out = ByteBuffer.allocateDirect((unitCount + 1) * Long.BYTES);
        try {
            int found = NativeSegment.unitPositions(
                    units, unitCount, split.start(), split.stop(), out);
            out.order(ByteOrder.nativeOrder()).asLongBuffer().get(offsets, count, found);
            count += found;
        } finally {
            StoreFiles.free(out);
        }
    }

    /** A queue that was rebuilt in part may name a record twice. */
    private void sort() {
        Arrays.sort(offsets, 0, count);
        int kept = 0;
        for (int i = 0; i < count; i++) {
            if (i == 0 || offsets[i] != offsets[i - 1]) {
                offsets[kept++] = offsets[i];
            }
        }
        count = kept;
    }
}
