package org.rmqstore.spark;

import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of a batch of the core, read where it is. It points at nothing before {@link #point} and
 * holds no memory of its own.
 *
 * <p>A map, and the array of headers that is made of one, has its offsets in the first buffer and
 * two children, keys and values.
 */
final class ArrowVector extends ColumnVector {
    private static final int PLACES = 4;

    private final ArrowVector keys;
    private final ArrowVector values;
    private final ArrowVector entries;
    private long validity;
    private long first;
    private long second;
    private long nulls;

    ArrowVector(DataType type) {
        super(type);
        if (type instanceof MapType map) {
            keys = new ArrowVector(map.keyType());
            values = new ArrowVector(map.valueType());
            entries = null;
        } else if (type instanceof ArrayType array) {
            StructType pair = (StructType) array.elementType();
            keys = new ArrowVector(pair.fields()[0].dataType());
            values = new ArrowVector(pair.fields()[1].dataType());
            entries = new ArrowVector(pair, keys, values);
        } else {
            keys = null;
            values = null;
            entries = null;
        }
    }

    private ArrowVector(StructType pair, ArrowVector keys, ArrowVector values) {
        super(pair);
        this.keys = keys;
        this.values = values;
        this.entries = null;
    }

    /** How many numbers of {@code places} a column of this type takes. */
    static int placesOf(DataType type) {
        return type instanceof MapType || type instanceof ArrayType ? 3 * PLACES : PLACES;
    }

    /** Takes buffers and count of nulls from {@code places} at {@code at}. */
    void point(long[] places, int at) {
        validity = places[at];
        first = places[at + 1];
        second = places[at + 2];
        nulls = places[at + 3];
        if (keys != null) {
            keys.point(places, at + PLACES);
            values.point(places, at + 2 * PLACES);
        }
    }

    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
        return nulls > 0;
    }

    @Override
    public int numNulls() {
        return (int) nulls;
    }

    @Override
    public boolean isNullAt(int row) {
        return nulls > 0 && !bit(validity, row);
    }

    private static boolean bit(long bits, int row) {
        return (Platform.getByte(null, bits + (row >> 3)) >> (row & 7) & 1) != 0;
    }

    @Override
    public boolean getBoolean(int row) {
        return bit(first, row);
    }

    @Override
    public int getInt(int row) {
        return Platform.getInt(null, first + 4L * row);
    }

    @Override
    public long getLong(int row) {
        return Platform.getLong(null, first + 8L * row);
    }

    @Override
    public UTF8String getUTF8String(int row) {
        if (isNullAt(row)) {
            return null;
        }
        int from = getInt(row);
        return UTF8String.fromAddress(null, second + from, getInt(row + 1) - from);
    }

    @Override
    public byte[] getBinary(int row) {
        if (isNullAt(row)) {
            return null;
        }
        int from = getInt(row);
        byte[] made = new byte[getInt(row + 1) - from];
        Platform.copyMemory(
                null, second + from, made, Platform.BYTE_ARRAY_OFFSET, made.length);
        return made;
    }

    @Override
    public ColumnarMap getMap(int row) {
        int from = getInt(row);
        return new ColumnarMap(keys, values, from, getInt(row + 1) - from);
    }

    @Override
    public ColumnarArray getArray(int row) {
        int from = getInt(row);
        return new ColumnarArray(entries, from, getInt(row + 1) - from);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        return ordinal == 0 ? keys : values;
    }

    @Override
    public byte getByte(int row) {
        throw unsupported();
    }

    @Override
    public short getShort(int row) {
        throw unsupported();
    }

    @Override
    public float getFloat(int row) {
        throw unsupported();
    }

    @Override
    public double getDouble(int row) {
        throw unsupported();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        throw unsupported();
    }

    private UnsupportedOperationException unsupported() {
        return new UnsupportedOperationException("not of a column of " + type.simpleString());
    }
}
