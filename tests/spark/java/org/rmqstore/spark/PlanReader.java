package org.rmqstore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarMap;

/**
 * Reads plans without Spark, by the classes that its tasks use.
 *
 * <pre>{"ddl": "`topic` STRING, ...", "plan": {...}}    {"rows": [["orders", ...]], "held": 0}</pre>
 *
 * One line of JSON each. With "sums" in the request the rows are those of the tasks' sums. An error of the reader is {"error": text, "held": 0}.
 */
public final class PlanReader {
    private PlanReader() {}

    /** Answers until standard input ends. */
    public static void main(String[] arguments) throws IOException {
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String line;
        while ((line = requests.readLine()) != null) {
            out.println(answer(Planner.JSON.readTree(line)));
        }
    }

    private static ObjectNode answer(JsonNode request) {
        StructType schema = StructType.fromDDL(request.get("ddl").asText());
        Plan.Query plan = Planner.read(request.get("plan"), Plan.Query.class);
        ObjectNode made = Planner.JSON.createObjectNode();
        try {
            ArrayNode rows = made.putArray("rows");
            for (Plan.Partition each : plan.partitions()) {
                if (request.hasNonNull("sums")) {
                    Plan.Sums sums = Planner.read(request.get("sums"), Plan.Sums.class);
                    addSums(new SumsReader(plan.reading(), sums, each), schema, rows);
                } else {
                    addRows(plan.reading(), schema, each, rows);
                }
            }
        } catch (StoreException error) {
            made.removeAll();
            made.put("error", error.getMessage());
        }
        return made.put("held", NativeSegment.held());
    }

    private static void addRows(
            Plan.Reading reading, StructType schema, Plan.Partition partition, ArrayNode rows) {
        SegmentReader reader =
                new SegmentReader(reading, schema, Integer.MAX_VALUE, partition);
        try {
            while (reader.next()) {
                Iterator<InternalRow> each = reader.get().rowIterator();
                while (each.hasNext()) {
                    addRow(each.next(), schema, rows.addArray());
                }
            }
        } finally {
            reader.close();
        }
    }

    private static void addSums(SumsReader reader, StructType schema, ArrayNode rows) {
        try {
            while (reader.next()) {
                addRow(reader.get(), schema, rows.addArray());
            }
        } finally {
            reader.close();
        }
    }

    private static void addRow(InternalRow row, StructType schema, ArrayNode into) {
        for (int i = 0; i < schema.size(); i++) {
            DataType type = schema.apply(i).dataType();
            if (row.isNullAt(i)) {
                into.addNull();
            } else if (type instanceof StringType) {
                into.add(row.getUTF8String(i).toString());
            } else if (type instanceof BinaryType) {
                into.add(HexFormat.of().formatHex(row.getBinary(i)));
            } else if (type instanceof IntegerType) {
                into.add(row.getInt(i));
            } else if (type instanceof BooleanType) {
                into.add(row.getBoolean(i));
            } else if (type instanceof MapType) {
                addPairs((ColumnarMap) row.getMap(i), into.addObject());
            } else {
                into.add(row.getLong(i));
            }
        }
    }

    private static void addPairs(ColumnarMap map, ObjectNode into) {
        for (int i = 0; i < map.numElements(); i++) {
            into.put(
                    map.keyArray().getUTF8String(i).toString(),
                    map.valueArray().getUTF8String(i).toString());
        }
    }
}
