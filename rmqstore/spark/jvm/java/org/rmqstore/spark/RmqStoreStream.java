package org.rmqstore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxBytes;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One streaming query. Positions, limits and plans are those of the Python source, made by a planner
 * that the query has for itself until it stops.
 */
final class RmqStoreStream
        implements MicroBatchStream, ReportsSourceMetrics, SupportsTriggerAvailableNow {
    private final StructType schema;
    private final Planner planner;
    private final ReadLimit limit;

    RmqStoreStream(StructType schema, CaseInsensitiveStringMap options) {
        this.schema = schema;
        planner = Planner.taken();
        boolean isOpen = false;
        try {
            limit = opened(options);
            isOpen = true;
        } finally {
            if (!isOpen) {
                planner.keep();
            }
        }
    }

    /** Begins the stream in the planner and returns the limit of a batch by its options. */
    private ReadLimit opened(CaseInsensitiveStringMap options) {
        ObjectNode request = request("open");
        request.set("options", Planner.JSON.valueToTree(options.asCaseSensitiveMap()));
        request.put("schema", schema.json());
        ArrayNode columns = request.putArray("columns");
        for (String name : schema.fieldNames()) {
            columns.add(name);
        }
        JsonNode answer = answer(request);
        long most = answer.get("most").asLong();
        return switch (answer.get("kind").asText()) {
            case "bytes" -> ReadLimit.maxBytes(most);
            case "rows" -> ReadLimit.maxRows(most);
            default -> ReadLimit.allAvailable();
        };
    }

    @Override
    public Offset initialOffset() {
        return offset(answer(request("initial")));
    }

    @Override
    public Offset deserializeOffset(String json) {
        return new Position(json);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return limit;
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        answer(request("now"));
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("a batch ends where its limit says");
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit most) {
        ObjectNode request = request("latest");
        request.put("start", start.json());
        if (most instanceof ReadMaxBytes bytes) {
            request.put("kind", "bytes").put("most", bytes.maxBytes());
        } else if (most instanceof ReadMaxRows rows) {
            request.put("kind", "rows").put("most", rows.maxRows());
        } else if (most instanceof ReadAllAvailable) {
            request.put("kind", "all").put("most", 0);
        } else {
            throw new IllegalArgumentException(
                    most + " is not a limit of this source; give rows or bytes, or none");
        }
        return offset(answer(request));
    }

    @Override
    public Offset reportLatestOffset() {
        return offset(answer(request("report")));
    }

    /** How far the query is behind the ends of the logs: in all, and of the log that is furthest. */
    @Override
    public Map<String, String> metrics(Optional<Offset> consumed) {
        if (consumed.isEmpty()) {
            return Map.of();
        }
        ObjectNode request = request("behind");
        request.put("offset", consumed.get().json());
        long most = 0;
        long sum = 0;
        for (JsonNode each : answer(request).get("bytes")) {
            most = Math.max(most, each.asLong());
            sum += each.asLong();
        }
        return Map.of(
                "bytesBehindLatest", Long.toString(sum),
                "maxBytesBehindLatest", Long.toString(most));
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        ObjectNode request = request("plan");
        request.put("start", start.json()).put("end", end.json());
        return Planner.read(answer(request).get("partitions"), Plan.StreamPartition[].class);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new StreamReaderFactory(schema);
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public synchronized void stop() {
        try {
            answer(request("close"));
        } finally {
            planner.keep();
        }
    }

    private static ObjectNode request(String what) {
        ObjectNode request = Planner.request("stream");
        request.put("do", what);
        return request;
    }

    private synchronized JsonNode answer(ObjectNode request) {
        return planner.checked(request);
    }

    private static Offset offset(JsonNode answer) {
        JsonNode text = answer.get("offset");
        return text.isNull() ? null : new Position(text.asText());
    }

    /** The text that a checkpoint keeps, written by either reader. */
    private static final class Position extends Offset {
        private final String json;

        Position(String json) {
            this.json = json;
        }

        @Override
        public String json() {
            return json;
        }
    }
}
