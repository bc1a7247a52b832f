package org.rmqstore.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** Turns what the core filled into batches of the columns that Spark requested. */
final class Shape {
    private static final String COUNTED = "physical_offset";

    private final Plan.Column[] columns;
    private final StructType schema;
    private final String[] natives;
    private final int[] places;
    private final long[] found = new long[NativeSegment.PLACES];
    private final ArrowVector[] vectors;
    private long held;

    Shape(Plan.Column[] columns, StructType schema) {
        this.columns = columns;
        this.schema = schema;
        vectors = new ArrowVector[columns.length];
        places = new int[columns.length];
        List<String> names = new ArrayList<>();
        List<Integer> starts = new ArrayList<>();
        int end = 1;
        for (int i = 0; i < columns.length; i++) {
            String name = columns[i].nativeName();
            if (name == null) {
                continue;
            }
            DataType type = schema.fields()[i].dataType();
            if (!names.contains(name)) {
                names.add(name);
                starts.add(end);
                end += ArrowVector.placesOf(type);
            }
            places[i] = starts.get(names.indexOf(name));
            vectors[i] = new ArrowVector(type);
        }
        if (names.isEmpty()) {
            // A batch without columns would have no number of rows.
            names.add(COUNTED);
        }
        natives = names.toArray(new String[0]);
    }

    /** What the core is to fill. */
    String[] natives() {
        return natives;
    }

    /** Takes the rows of a segment of the file {@code path}; valid until {@link #release}. */
    ColumnarBatch taken(long segment, String path) {
        int rows = (int) NativeSegment.taken(segment, found);
        held = found[0];
        ColumnVector[] made = new ColumnVector[columns.length];
        for (int i = 0; i < made.length; i++) {
            if (vectors[i] == null) {
                made[i] = constant(columns[i].name(), schema.fields()[i].dataType(), rows, path);
            } else {
                vectors[i].point(found, places[i]);
                made[i] = vectors[i];
            }
        }
        return new ColumnarBatch(made, rows);
    }

    /** Gives back the memory of the batch before. */
    void release() {
        if (held != 0) {
            long batch = held;
            held = 0;
            NativeSegment.released(batch);
        }
    }

    private static ColumnVector constant(String name, DataType type, int rows, String path) {
        ConstantColumnVector made = new ConstantColumnVector(rows, type);
        if (name.equals("path")) {
            made.setUtf8String(UTF8String.fromString(path));
        } else if (name.equals("timestampType")) {
            made.setInt(0);
        } else {
            made.setNull();
        }
        return made;
    }

    /** A row for each damage: path, physicalOffset, size and error, all else null. */
    ColumnarBatch damaged(List<Losses.Damage> damages) {
        OnHeapColumnVector[] made = OnHeapColumnVector.allocateColumns(damages.size(), schema);
        for (int i = 0; i < made.length; i++) {
            for (int row = 0; row < damages.size(); row++) {
                put(made[i], row, columns[i].name(), damages.get(row));
            }
        }
        return new ColumnarBatch(made, damages.size());
    }

    private static void put(
            OnHeapColumnVector into, int row, String name, Losses.Damage damage) {
        switch (name) {
            case "path" -> into.putByteArray(row, utf8(damage.path()));
            case "error" -> into.putByteArray(row, utf8(damage.error()));
            case "physicalOffset" -> into.putLong(row, damage.offset());
            case "size" -> into.putInt(row, (int) damage.size());
            default -> into.putNull(row);
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
