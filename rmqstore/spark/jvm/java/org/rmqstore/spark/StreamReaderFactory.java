package org.rmqstore.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the readers of a stream's tasks, whose partitions name how they are read. */
final class StreamReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    private final StructType schema;

    StreamReaderFactory(StructType schema) {
        this.schema = schema;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        Plan.StreamPartition chosen = (Plan.StreamPartition) partition;
        return new SegmentReader(
                chosen.reading(), schema, Integer.MAX_VALUE, new Plan.Partition(chosen.splits()));
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        throw new UnsupportedOperationException("a stream is read in batches of columns");
    }
}
