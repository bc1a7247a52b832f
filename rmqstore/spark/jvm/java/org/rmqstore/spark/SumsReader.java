package org.rmqstore.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
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
    private final List<String> groups;
    private final Map<List<Object>, Object[]> rows = new LinkedHashMap<>();
    private Iterator<Object[]> found;
    private Object[] row;

    SumsReader(Plan.Reading reading, Plan.Sums sums, Plan.Partition partition) {
        splits = partition.splits();
        this.sums = sums;
        groups = List.of(sums.groups());
        losses = new Losses(reading);
        reader = new SplitReader(reading, losses, new String[0], groups.contains("tags"));
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
        if (groups.isEmpty()) {
            rows.put(groupedBy(new Object[0]), zeros());
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
        byte[][] texts = NativeSegment.groups(segment);
        long[] numbers = NativeSegment.sums(segment);
        for (int i = 0; i < texts.length / 2; i++) {
            long[] of = Arrays.copyOfRange(
                    numbers, i * NUMBERS.size(), (i + 1) * NUMBERS.size());
            addRow(text(texts[2 * i]), text(texts[2 * i + 1]), of);
        }
    }

    /** Bytes that are not UTF-8 are replaced, as in rows. */
    private static UTF8String text(byte[] stored) {
        return stored == null
                ? null
                : UTF8String.fromString(new String(stored, StandardCharsets.UTF_8));
    }

    private static List<Object> groupedBy(Object[] values) {
        return Arrays.asList(values);
    }

    private void addRow(UTF8String topic, UTF8String tag, long[] numbers) {
        Object[] group = new Object[groups.size()];
        for (int i = 0; i < group.length; i++) {
            group[i] = switch (groups.get(i)) {
                case "topic" -> topic;
                case "tags" -> tag;
                default -> (int) numbers[0];
            };
        }
        Object[] into = rows.computeIfAbsent(groupedBy(group), none -> {
            Object[] made = zeros();
            System.arraycopy(group, 0, made, 0, group.length);
            return made;
        });
        for (int i = 0; i < sums.values().length; i++) {
            String name = sums.values()[i];
            long number = numbers[NUMBERS.indexOf(name)];
            if (name.endsWith("timestamp")) {
                number = microseconds(number);
            }
            int at = group.length + i;
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
