package org.rmqstore.spark;

import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads the splits of one task. A batch is valid until the next one; memory outside of the heap is a
 * window, a batch and eight bytes for each offset of queue units, and closing gives it back.
 */
final class SegmentReader implements PartitionReader<ColumnarBatch> {
    private static final long[] NOTHING = {};
    private static final int ERROR_ROWS = 4096;

    private final Plan.Reading reading;
    private final Texts texts;
    private final Plan.Split[] splits;
    private final Losses losses;
    private final Shape shape;
    private final long[] facts = new long[NativeSegment.FACTS];
    private int next;
    private long left;
    private boolean isOver;
    /** Whether the segment is read to its end, so that only its last rows are left. */
    private boolean isDrained;
    private long segment;
    private Window window;
    private RecordOffsets offsets;
    private ColumnarBatch batch;

    SegmentReader(Plan.Reading reading, StructType schema, int limit, Plan.Partition partition) {
        this.reading = reading;
        this.texts = new Texts(reading.texts());
        this.splits = partition.splits();
        this.losses = new Losses(reading, texts);
        this.shape = new Shape(reading.columns(), schema);
        this.left = limit;
    }

    @Override
    public boolean next() {
        shape.release();
        batch = isOver || left <= 0 ? null : found();
        if (batch == null) {
            return false;
        }
        batch.setNumRows((int) Math.min(batch.numRows(), left));
        left -= batch.numRows();
        return true;
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() {
        shape.release();
        closeSplit();
    }

    /** Returns the next batch, null at the end. */
    private ColumnarBatch found() {
        while (segment != 0 || next < splits.length) {
            Plan.Split split = splits[segment != 0 ? next - 1 : next];
            try {
                if (segment == 0) {
                    ++next;
                    open(split);
                }
                long rows = segment == 0 || isDrained ? 0 : fill();
                if (rows > 0) {
                    return shape.taken(segment, split.path());
                }
                closeSplit();
            } catch (StoreException error) {
                closeSplit();
                if (!error.isKind(StoreException.NOT_FOUND)) {
                    throw error;
                }
                losses.addGone(split, error);
            }
            if (losses.untold() >= ERROR_ROWS) {
                return shape.damaged(losses.taken());
            }
        }

        if (losses.untold() > 0) {
            return shape.damaged(losses.taken());
        }
        isOver = true;
        losses.warn();
        return null;
    }

    private void open(Plan.Split split) {
        isDrained = false;
        if (split.units() != null) {
            offsets = new RecordOffsets(split, reading, texts);
            if (offsets.count() == 0) {
                return;
            }
        }
        window = new Window(split, reading, texts, offsets);
        long[] numbers = {
            split.start(), split.stop(), split.reach(), reading.beginMs(), reading.endMs(),
            Math.min(reading.batchRows(), Math.max(left, 1)), reading.batchBytes(),
        };
        int flags = (reading.checkCrc() ? NativeSegment.CHECK_CRC : 0)
                | (reading.dispatchedOnly() ? NativeSegment.DISPATCHED_ONLY : 0)
                | (reading.byTopic() ? NativeSegment.BY_TOPIC : 0);
        segment = NativeSegment.opened(shape.natives(), numbers, flags, bytesOf(reading.tags()));
        for (Plan.Topic each : reading.topics()) {
            NativeSegment.choose(
                    segment, each.topic().getBytes(StandardCharsets.UTF_8), each.ranges());
        }
        if (offsets != null) {
            visit();
        }
        facts[NativeSegment.OFFSET] = split.start();
    }

    private void visit() {
        try {
            NativeSegment.visit(segment, offsets.positions(), offsets.count());
        } catch (CorruptBytesException error) {
            throw new StoreException(StoreException.CORRUPTION, error.getMessage());
        }
    }

    /** Returns the rows of a batch that is full, or the last ones of the split. */
    private long fill() {
        while (true) {
            int state = NativeSegment.fill(segment, facts);
            if (state == NativeSegment.FULL) {
                return facts[NativeSegment.ROWS];
            }
            if (state == NativeSegment.TOPIC) {
                NativeSegment.choose(
                        segment,
                        NativeSegment.topic(segment),
                        reading.others() == null ? NOTHING : reading.others());
                continue;
            }
            if (state == NativeSegment.MORE && window.feed(segment, facts)) {
                continue;
            }
            boolean isEnd = state == NativeSegment.OVER
                    && facts[NativeSegment.ENDING] != NativeSegment.ENDING_UNWRITTEN;
            if (isEnd || !passDamage()) {
                isDrained = true;
                return facts[NativeSegment.ROWS];
            }
        }
    }

    /** Whether the segment can go on after the bad place that it stopped at. */
    private boolean passDamage() {
        long start = facts[NativeSegment.OFFSET];
        String error = window.error(NativeSegment.error(segment), start);
        if (losses.fails()) {
            throw new StoreException(StoreException.CORRUPTION, error);
        }
        int state = window.isCut() ? NativeSegment.OVER : NativeSegment.resync(segment, facts);
        while (state == NativeSegment.MORE) {
            state = window.feed(segment, facts)
                    ? NativeSegment.resync(segment, facts)
                    : NativeSegment.OVER;
        }
        boolean isFound = state == NativeSegment.FOUND;
        long end = isFound ? facts[NativeSegment.OFFSET] : splits[next - 1].stop();
        losses.add(new Losses.Damage(
                splits[next - 1].path(), start, window.damagedBytes(start, end), error));
        return isFound;
    }

    private void closeSplit() {
        if (segment != 0) {
            long handle = segment;
            segment = 0;
            NativeSegment.closed(handle);
        }
        if (window != null) {
            window.close();
            window = null;
        }
        if (offsets != null) {
            offsets.close();
            offsets = null;
        }
    }

    private static byte[][] bytesOf(String[] texts) {
        byte[][] made = new byte[texts == null ? 0 : texts.length][];
        for (int i = 0; i < made.length; i++) {
            made[i] = texts[i].getBytes(StandardCharsets.UTF_8);
        }
        return made;
    }
}
