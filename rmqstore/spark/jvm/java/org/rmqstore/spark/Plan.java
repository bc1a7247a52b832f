package org.rmqstore.spark;

import java.io.Serializable;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * What rmqstore.spark.jvm.planner answers, under the same names; rmqstore.spark.read.ranges has the
 * terms.
 */
final class Plan {
    private Plan() {}

    /** Units of one queue, by their numbers. */
    record Units(String path, long fileSize, long first, long stop, int unitSize)
            implements Serializable {}

    /** The records of one file that begin in [start, stop). */
    record Split(
            String store, String path, long fileStart, long start, long stop, long reach,
            Units[] units)
            implements Serializable {}

    /** What one task reads. */
    record Partition(Split[] splits) implements InputPartition {}

    /** What one task of a stream reads, and how: starting options may choose in a part only. */
    record StreamPartition(Reading reading, Split[] splits) implements InputPartition {}

    /** Which messages of a topic are wanted, as five numbers for each range of a queue. */
    record Topic(String topic, long[] ranges) implements Serializable {}

    /** A column of the result: its name in the core, null where it is made without. */
    record Column(String name, String nativeName) implements Serializable {}

    /** Which share of the messages is read; csrc/columns/message_filter.h has the terms. */
    record Sample(long seed, long begin, long end) implements Serializable {}

    /** How every task reads. */
    record Reading(
            Column[] columns, long batchRows, long batchBytes, boolean checkCrc,
            boolean dispatchedOnly, boolean byTopic, long beginMs, long endMs, String[] tags,
            String[] keys, int[] sysFlags, long bornBeginMs, long bornEndMs, Sample sample,
            Topic[] topics, long[] others, String onCorrupt, boolean failOnDataLoss,
            int windowBytes, int gapBytes, int recordBytes, Map<String, String> texts)
            implements Serializable {}

    /** What tasks sum up instead of giving rows, by the core's names: groups, then values. */
    record Sums(String[] groups, String[] values, String ddl) implements Serializable {}

    /** A planned query; rows: an estimate, null where there is none. */
    record Query(Reading reading, Partition[] partitions, long bytes, Long rows) {}
}
