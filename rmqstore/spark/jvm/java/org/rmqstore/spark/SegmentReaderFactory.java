package org.rmqstore.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the readers of tasks; travels to the executors. */
final class SegmentReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    private final Plan.Reading reading;
    private final StructType schema;
    private final int limit;
    private final Plan.Sums sums;

    /** sums: null for rows. */
    SegmentReaderFactory(Plan.Reading reading, StructType schema, int limit, Plan.Sums sums) {
        this.reading = reading;
        this.schema = schema;
        this.limit = limit;
        this.sums = sums;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return sums == null;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        return new SegmentReader(reading, schema, limit, (Plan.Partition) partition);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        return new SumsReader(reading, sums, (Plan.Partition) partition);
    }
}
