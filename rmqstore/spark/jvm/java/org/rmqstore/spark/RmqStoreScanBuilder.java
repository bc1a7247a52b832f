package org.rmqstore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.SampleMethod;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTableSample;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects the columns, conditions and sums of a query. The planner decides which ones narrow it. */
final class RmqStoreScanBuilder
        implements ScanBuilder,
                SupportsPushDownRequiredColumns,
                SupportsPushDownV2Filters,
                SupportsPushDownAggregates,
                SupportsPushDownLimit,
                SupportsPushDownTableSample {
    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private StructType wanted;
    private Predicate[] pushed = {};
    private ArrayNode conditions = Planner.JSON.createArrayNode();
    private int limit = Integer.MAX_VALUE;
    private Plan.Sums sums;
    private Plan.Sample sample;

    RmqStoreScanBuilder(
            StructType schema, CaseInsensitiveStringMap options) {
        this.schema = schema;
        this.options = options;
        this.wanted = schema;
    }

    @Override
    public void pruneColumns(StructType required) {
        wanted = required;
    }

    /** Returns those that Spark must evaluate again. */
    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        ArrayNode given = Planner.JSON.createArrayNode();
        for (Predicate each : predicates) {
            given.add(Conditions.node(each));
        }
        ObjectNode request = Planner.request("push", options.asCaseSensitiveMap());
        request.set("conditions", given);
        JsonNode effects = Planner.ask(request).get("effects");

        List<Predicate> taken = new ArrayList<>();
        List<Predicate> left = new ArrayList<>();
        conditions = Planner.JSON.createArrayNode();
        for (int i = 0; i < predicates.length; i++) {
            String effect = effects.get(i).asText();
            if (!effect.equals("none")) {
                taken.add(predicates[i]);
                conditions.add(given.get(i));
            }
            if (!effect.equals("exact")) {
                left.add(predicates[i]);
            }
        }
        pushed = taken.toArray(new Predicate[0]);
        return left.toArray(new Predicate[0]);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return pushed;
    }

    /** Each task sums up its part; only where no condition is left to Spark. */
    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        ObjectNode request = Planner.request("aggregate", options.asCaseSensitiveMap());
        request.set("aggregation", Conditions.node(aggregation));
        JsonNode answer = Planner.ask(request).get("sums");
        if (answer.isNull()) {
            return false;
        }
        sums = Planner.read(answer, Plan.Sums.class);
        wanted = StructType.fromDDL(sums.ddl());
        return true;
    }

    /** The rows of a sample follow from its seed and their places, not from tasks. */
    @Override
    public boolean pushTableSample(
            double lowerBound, double upperBound, boolean withReplacement, long seed,
            SampleMethod method) {
        if (method != SampleMethod.BERNOULLI) {
            return false;
        }
        ObjectNode request = Planner.request("sample", options.asCaseSensitiveMap());
        request.put("lower", lowerBound).put("upper", upperBound);
        request.put("withReplacement", withReplacement).put("seed", seed);
        JsonNode answer = Planner.ask(request).get("sample");
        if (answer.isNull()) {
            return false;
        }
        sample = Planner.read(answer, Plan.Sample.class);
        return true;
    }

    /** Each task ends after so many rows; Spark takes the first of all tasks. */
    @Override
    public boolean pushLimit(int rows) {
        limit = rows;
        return true;
    }

    @Override
    public boolean isPartiallyPushed() {
        return true;
    }

    @Override
    public Scan build() {
        return new RmqStoreScan(schema, wanted, options, pushed, conditions, limit, sums, sample);
    }
}
