package org.rmqstore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One read of stores, planned once, so that all of its tasks have the same ends. */
final class RmqStoreScan implements Scan, Batch, SupportsReportStatistics {
    private final StructType schema;
    private final StructType wanted;
    private final CaseInsensitiveStringMap options;
    private final Predicate[] pushed;
    private final ArrayNode conditions;
    private final int limit;
    private final Plan.Sums sums;
    private final Plan.Sample sample;
    private boolean isStream;
    private Plan.Query planned;

    RmqStoreScan(
            StructType schema,
            StructType wanted,
            CaseInsensitiveStringMap options,
            Predicate[] pushed,
            ArrayNode conditions,
            int limit,
            Plan.Sums sums,
            Plan.Sample sample) {
        this.schema = schema;
        this.wanted = wanted;
        this.options = options;
        this.pushed = pushed;
        this.conditions = conditions;
        this.limit = limit;
        this.sums = sums;
        this.sample = sample;
    }

    @Override
    public StructType readSchema() {
        return wanted;
    }

    @Override
    public String description() {
        String filters =
                Arrays.stream(pushed).map(Predicate::toString).collect(Collectors.joining(", "));
        String rows = limit == Integer.MAX_VALUE ? "" : ", PushedLimit: " + limit;
        String made = sums == null
                ? ""
                : ", PushedAggregates: [" + String.join(", ", sums.values()) + "], PushedGroupBy: ["
                        + String.join(", ", sums.groups()) + "]";
        String share = sample == null ? "" : ", PushedSample: seed " + sample.seed();
        return RmqStoreProvider.NAME + " (JVM) PushedFilters: [" + filters + "]" + made + share
                + rows;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return sums != null
                ? ColumnarSupportMode.UNSUPPORTED
                : ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public Batch toBatch() {
        return this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        isStream = true;
        return new RmqStoreStream(wanted, options);
    }

    @Override
    public Statistics estimateStatistics() {
        long bytes = isStream ? -1 : query().bytes();
        Long rows = isStream ? null : query().rows();
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return bytes < 0 ? OptionalLong.empty() : OptionalLong.of(bytes);
            }

            @Override
            public OptionalLong numRows() {
                return rows == null ? OptionalLong.empty() : OptionalLong.of(rows);
            }
        };
    }

    @Override
    public InputPartition[] planInputPartitions() {
        Plan.Partition[] partitions = query().partitions();
        // A count of nothing is a row as well.
        return partitions.length == 0 && sums != null
                ? new InputPartition[] {new Plan.Partition(new Plan.Split[0])}
                : partitions;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new SegmentReaderFactory(query().reading(), wanted, limit, sums);
    }

    private synchronized Plan.Query query() {
        if (planned == null) {
            ObjectNode request = Planner.request("plan", options.asCaseSensitiveMap());
            request.set("conditions", conditions);
            request.set("sample", Planner.JSON.valueToTree(sample));
            ArrayNode columns = request.putArray("columns");
            if (sums == null) {
                for (String name : wanted.fieldNames()) {
                    columns.add(name);
                }
            }
            ArrayNode fields = request.putArray("schema");
            for (StructField each : schema.fields()) {
                fields.addArray()
                        .add(each.name())
                        .add(each.dataType().simpleString())
                        .add(each.nullable());
            }
            planned = Planner.read(Planner.ask(request), Plan.Query.class);
        }
        return planned;
    }
}
