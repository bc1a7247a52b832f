package org.rmqstore.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.unsafe.types.UTF8String;

/** The sums of one task by its groups, which the core makes without a column; Spark adds them up. */
final class SumsReader implements PartitionReader<InternalRow> {
    /** The numbers of a row of the core's summary, in the order of csrc/jni/segment_jni.c. */
    private static final List<String> NUMBERS = List.of(
            "queue_id", "messages", "min_queue_offset", "max_queue_offset", "min_store_timestamp",
            "max_store_timestamp", "min_physical_offset", "max_physical_offset");

    private static final long MILLISECOND = 1000;

    private final Plan.Split[] splits;
    private final Plan.Sums sums;
    private final Losses losses;
    private final SplitReader reader;
    private final Map<String, Object[]> rows = new TreeMap<>();
    private Iterator<Object[]> found;
    private Object[] row;

    SumsReader(Plan.Reading reading, Plan.Sums sums, Plan.Partition partition) {
        splits = partition.splits();
        this.sums = sums;
        losses = new Losses(reading);
        reader = new SplitReader(reading, losses, new String[0]);
    }

    @Override
    public boolean next() {
        if (found == null) {
            sum();
            found = new ArrayList<>(rows.values()).iterator();
        }
        row = found.hasNext() ? found.next() : null;
        return row != null;
    }

    @Override
    public InternalRow get() {
        return new GenericInternalRow(row);
    }

    @Override
    public void close() {
        reader.close();
    }

    private void sum() {
        if (sums.groups().length == 0) {
            rows.put("", zeros());
        }
        for (Plan.Split split : splits) {
            try {
                reader.open(split, 1);
                reader.fill();
                if (reader.segment() != 0) {
                    add(reader.segment());
                }
            } catch (StoreException error) {
                reader.close();
                losses.addGone(split, error);
            }
            reader.close();
        }
        losses.warn();
    }

    private void add(long segment) {
        byte[][] topics = NativeSegment.topics(segment);
        long[] numbers = NativeSegment.sums(segment);
        for (int i = 0; i < topics.length; i++) {
            long[] of = Arrays.copyOfRange(
                    numbers, i * NUMBERS.size(), (i + 1) * NUMBERS.size());
            addRow(new String(topics[i], StandardCharsets.UTF_8), of);
        }
    }

    private void addRow(String topic, long[] numbers) {
        Object[] groups = new Object[sums.groups().length];
        for (int i = 0; i < groups.length; i++) {
            groups[i] = sums.groups()[i].equals("topic")
                    ? UTF8String.fromString(topic)
                    : (Object) (int) numbers[0];
        }
        Object[] into = rows.computeIfAbsent(Arrays.toString(groups), none -> {
            Object[] made = zeros();
            System.arraycopy(groups, 0, made, 0, groups.length);
            return made;
        });
        for (int i = 0; i < sums.values().length; i++) {
            String name = sums.values()[i];
            long number = numbers[NUMBERS.indexOf(name)];
            if (name.endsWith("timestamp")) {
                number = microseconds(number);
            }
            int at = groups.length + i;
            into[at] = into[at] == null ? number : joined(name, (long) into[at], number);
        }
    }

    /** A time that is out of Spark's range is the first or last one in it, as in rows. */
    private static long microseconds(long milliseconds) {
        if (Math.abs(milliseconds) <= Long.MAX_VALUE / MILLISECOND) {
            return milliseconds * MILLISECOND;
        }
        return milliseconds < 0 ? Long.MIN_VALUE : Long.MAX_VALUE;
    }

    private static long joined(String name, long before, long number) {
        if (name.startsWith("min_")) {
            return Math.min(before, number);
        }
        return name.startsWith("max_") ? Math.max(before, number) : before + number;
    }

    /** A row of no messages. */
    private Object[] zeros() {
        Object[] made = new Object[sums.groups().length + sums.values().length];
        for (int i = 0; i < sums.values().length; i++) {
            if (sums.values()[i].equals("messages")) {
                made[sums.groups().length + i] = 0L;
            }
        }
        return made;
    }
}
