package org.rmqstore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Stores as one table; beside it the table of the Python source. */
final class RmqStoreTable implements Table, SupportsRead, SupportsWrite {
    private final StructType schema;
    private final Table python;

    RmqStoreTable(StructType schema, Table python) {
        this.schema = schema;
        this.python = python;
    }

    @Override
    public String name() {
        return RmqStoreProvider.NAME;
    }

    @Override
    public Column[] columns() {
        return python.columns();
    }

    @Override
    public Set<TableCapability> capabilities() {
        return python.capabilities();
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        JsonNode answer =
                Planner.ask(Planner.request("reader", options.asCaseSensitiveMap()));
        return answer.get("reader").asText().equals("jvm")
                ? new RmqStoreScanBuilder(schema, options)
                : ((SupportsRead) python).newScanBuilder(options);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return ((SupportsWrite) python).newWriteBuilder(info);
    }
}
