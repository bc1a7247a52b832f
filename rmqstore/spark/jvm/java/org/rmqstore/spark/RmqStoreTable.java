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

/**
 * Stores as one table; beside it the table of the Python source. A statement has its own options, and
 * those of the table where it names none.
 */
final class RmqStoreTable implements Table, SupportsRead, SupportsWrite {
    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private final Table python;

    RmqStoreTable(StructType schema, CaseInsensitiveStringMap options, Table python) {
        this.schema = schema;
        this.options = options;
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
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ofStatement) {
        CaseInsensitiveStringMap joined = TableOptions.joined(options, ofStatement);
        JsonNode answer = Planner.ask(Planner.request("reader", joined.asCaseSensitiveMap()));
        return answer.get("reader").asText().equals("jvm")
                ? new RmqStoreScanBuilder(schema, joined)
                : ((SupportsRead) python).newScanBuilder(joined);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return ((SupportsWrite) python).newWriteBuilder(
                new WriteInfo(
                        TableOptions.joined(options, info.options()),
                        info.queryId(),
                        info.schema()));
    }

    private record WriteInfo(CaseInsensitiveStringMap options, String queryId, StructType schema)
            implements LogicalWriteInfo {}
}
