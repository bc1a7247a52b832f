package org.rmqstore.spark;

import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows of one task in batches, each valid until the next; closing gives all memory back. */
final class SegmentReader implements PartitionReader<ColumnarBatch> {
    private static final int ERROR_ROWS = 4096;

    private final Plan.Split[] splits;
    private final Losses losses;
    private final Shape shape;
    private final SplitReader reader;
    private int next;
    private long left;
    private boolean isOver;
    private ColumnarBatch batch;

    SegmentReader(Plan.Reading reading, StructType schema, int limit, Plan.Partition partition) {
        splits = partition.splits();
        losses = new Losses(reading);
        shape = new Shape(reading.columns(), schema);
        reader = new SplitReader(reading, losses, shape.natives(), false);
        left = limit;
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
        reader.close();
    }

    /** Returns the next batch, null at the end. */
    private ColumnarBatch found() {
        while (reader.segment() != 0 || next < splits.length) {
            Plan.Split split = splits[reader.segment() != 0 ? next - 1 : next];
            try {
                if (reader.segment() == 0) {
                    ++next;
                    reader.open(split, left);
                }
                if (reader.fill() > 0) {
                    return shape.taken(reader.segment(), split.path());
                }
                reader.close();
            } catch (StoreException error) {
                reader.close();
                losses.addGone(split, error);
            }
            if (losses.unreported() >= ERROR_ROWS) {
                return shape.damaged(losses.taken());
            }
        }

        if (losses.unreported() > 0) {
            return shape.damaged(losses.taken());
        }
        isOver = true;
        losses.warn();
        return null;
    }
}
