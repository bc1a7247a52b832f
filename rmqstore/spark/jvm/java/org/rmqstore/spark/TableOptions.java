package org.rmqstore.spark;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of a table among its properties. A catalog's table has further ones, keeps options
 * under a prefix, and its path as a URI.
 */
final class TableOptions {
    private static final String PATH = "path";
    private static final String PATHS = "paths";

    private TableOptions() {}

    /** What a query or CREATE TABLE named. */
    static CaseInsensitiveStringMap of(Map<String, String> properties) {
        if (!properties.containsKey(TableCatalog.PROP_PROVIDER)) {
            return new CaseInsensitiveStringMap(properties);
        }
        Map<String, String> made = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        properties.forEach((name, value) -> {
            if (name.startsWith(TableCatalog.OPTION_PREFIX)) {
                made.put(name.substring(TableCatalog.OPTION_PREFIX.length()), value);
            }
        });
        String path = properties.get(PATH);
        // Without a path the catalog names a folder of its own.
        if (path != null && !made.containsKey(PATHS)) {
            made.put(PATH, path.replaceFirst("^file:(//(?=/))?", ""));
        }
        return new CaseInsensitiveStringMap(made);
    }

    /** Those of a table, with those of one statement in their places. */
    static CaseInsensitiveStringMap joined(
            CaseInsensitiveStringMap ofTable, CaseInsensitiveStringMap ofStatement) {
        Map<String, String> made = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        made.putAll(ofTable.asCaseSensitiveMap());
        made.putAll(ofStatement.asCaseSensitiveMap());
        return new CaseInsensitiveStringMap(made);
    }
}
