package org.rmqstore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/** Spark's conditions in the form that rmqstore.spark.read.conditions takes. */
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

    private static ObjectNode argument(Expression expression) {
        ObjectNode made = Planner.JSON.createObjectNode();
        if (expression instanceof NamedReference named && named.fieldNames().length == 1) {
            made.put("column", named.fieldNames()[0]);
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
