package org.rmqstore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SessionConfigSupport;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The format "rmqstore" where a session has this jar.
 *
 * <p>Queries are read here. Writing, and reads with options that only Python has, are passed to the
 * Python source of the same name.
 */
public final class RmqStoreProvider implements SessionConfigSupport, DataSourceRegister {
    static final String NAME = "rmqstore";

    @Override
    public String shortName() {
        return NAME;
    }

    /** Properties spark.datasource.rmqstore.* of a session are options of its reads. */
    @Override
    public String keyPrefix() {
        return NAME;
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        Map<String, String> given =
                TableOptions.of(options.asCaseSensitiveMap()).asCaseSensitiveMap();
        JsonNode answer = Planner.ask(Planner.request("schema", given));
        return StructType.fromDDL(answer.get("ddl").asText());
    }

    @Override
    public Table getTable(
            StructType schema, Transform[] partitioning, Map<String, String> properties) {
        PythonDataSourceV2 python = new PythonDataSourceV2();
        python.setShortName(NAME);
        return new RmqStoreTable(
                schema,
                TableOptions.of(properties),
                python.getTable(schema, partitioning, properties));
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }
}
