package org.rmqstore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/** Spark's conditions and sums in the form that rmqstore.spark.read.conditions takes. */
final class Conditions {
    private Conditions() {}

    /** Name and arguments; an argument that is neither column nor literal is {}. */
    static ObjectNode node(Predicate predicate) {
        ObjectNode made = Planner.JSON.createObjectNode();
        made.put("name", predicate.name());
        ArrayNode arguments = made.putArray("arguments");
        for (Expression each : predicate.children()) {
            arguments.add(argument(each));
        }
        return made;
    }

    /** Names of the columns to group by, and functions with their columns; null where it is neither. */
    static ObjectNode node(Aggregation aggregation) {
        ObjectNode made = Planner.JSON.createObjectNode();
        ArrayNode groups = made.putArray("groups");
        for (Expression each : aggregation.groupByExpressions()) {
            groups.add(column(each));
        }
        ArrayNode functions = made.putArray("functions");
        for (AggregateFunc each : aggregation.aggregateExpressions()) {
            ObjectNode function = functions.addObject();
            if (each instanceof CountStar) {
                function.put("name", "count");
            } else if (each instanceof Count count && !count.isDistinct()) {
                function.put("name", "count").put("column", column(count.column()));
            } else if (each instanceof Min least) {
                function.put("name", "min").put("column", column(least.column()));
            } else if (each instanceof Max greatest) {
                function.put("name", "max").put("column", column(greatest.column()));
            } else {
                function.put("name", "other");
            }
        }
        return made;
    }

    private static String column(Expression expression) {
        return expression instanceof NamedReference named && named.fieldNames().length == 1
                ? named.fieldNames()[0]
                : null;
    }

    private static ObjectNode argument(Expression expression) {
        ObjectNode made = Planner.JSON.createObjectNode();
        if (column(expression) != null) {
            made.put("column", column(expression));
        } else if (expression instanceof LiteralValue<?> literal) {
            made.put("type", literal.dataType().simpleString());
            // By their types: an INT is an Integer, BIGINT and TIMESTAMP are Longs.
            if (literal.value() instanceof UTF8String text) {
                made.put("value", text.toString());
            } else if (literal.value() instanceof Integer || literal.value() instanceof Long) {
                made.put("value", ((Number) literal.value()).longValue());
            }
        }
        return made;
    }
}
