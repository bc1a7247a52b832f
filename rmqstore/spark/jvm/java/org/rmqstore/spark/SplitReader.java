package org.rmqstore.spark;

import java.nio.charset.StandardCharsets;

/**
 * Takes the segment of one split after the other through what it needs: bytes, decisions about
 * topics, and the way past damage. Holds a window, and eight bytes for each offset of queue units.
 */
final class SplitReader implements AutoCloseable {
    private static final long[] NOTHING = {};

    private final Plan.Reading reading;
    private final Texts texts;
    private final Losses losses;
    private final String[] columns;
    private final int flags;
    private final byte[][] tags;
    private final byte[][] keys;
    private final long[] facts = new long[NativeSegment.FACTS];
    private Plan.Split split;
    private long segment;
    private Window window;
    private RecordOffsets offsets;
    private boolean isDrained;

    /** columns: of the core; none to sum up. sumsByTag: a sum for each tag of a queue, too. */
    SplitReader(Plan.Reading reading, Losses losses, String[] columns, boolean sumsByTag) {
        this.reading = reading;
        this.texts = new Texts(reading.texts());
        this.losses = losses;
        this.columns = columns;
        flags = (reading.checkCrc() ? NativeSegment.CHECK_CRC : 0)
                | (reading.dispatchedOnly() ? NativeSegment.DISPATCHED_ONLY : 0)
                | (reading.byTopic() ? NativeSegment.BY_TOPIC : 0)
                | (sumsByTag ? NativeSegment.SUMS_BY_TAG : 0);
        tags = bytesOf(reading.tags());
        keys = bytesOf(reading.keys());
    }

    /** The segment of the split, 0 without one. */
    long segment() {
        return segment;
    }

    /** Begins a split, whose batches have at most so many rows. */
    void open(Plan.Split next, long rows) {
        split = next;
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
            Math.min(reading.batchRows(), rows), reading.batchBytes(),
            reading.bornBeginMs(), reading.bornEndMs(), reading.sample().seed(),
            reading.sample().begin(), reading.sample().end(),
        };
        segment = NativeSegment.opened(columns, numbers, flags, tags, keys, reading.sysFlags());
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

    /** Returns the rows of a batch that is full, or the last ones of the split, then 0. */
    long fill() {
        while (segment != 0 && !isDrained) {
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
        return 0;
    }

    /** Whether the segment can continue after the damage at which it stopped. */
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
        long end = isFound ? facts[NativeSegment.OFFSET] : split.stop();
        losses.add(new Losses.Damage(
                split.path(), start, window.damagedBytes(start, end), error));
        return isFound;
    }

    /** Ends the split; nothing is held after that. */
    @Override
    public void close() {
        if (segment != 0) {
            long handle = segment;
            segment = 0;
            NativeSegment.closed(handle);
        }
        if (offsets != null) {
            offsets.close();
            offsets = null;
        }
        if (window != null) {
            Window closing = window;
            window = null;
            closing.close();
        }
    }

    private static byte[][] bytesOf(String[] texts) {
        byte[][] made = new byte[texts.length][];
        for (int i = 0; i < made.length; i++) {
            made[i] = texts[i].getBytes(StandardCharsets.UTF_8);
        }
        return made;
    }
}
