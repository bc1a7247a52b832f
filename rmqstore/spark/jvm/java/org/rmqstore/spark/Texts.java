package org.rmqstore.spark;

import java.util.Map;

/** The texts of rmqstore.spark.read.texts, which a plan brings along, so that they exist once. */
record Texts(Map<String, String> patterns) {
    /** Returns a text with its names filled in, given as pairs of name and value. */
    String of(String name, Object... values) {
        String text = patterns.get(name);
        for (int i = 0; i < values.length; i += 2) {
            text = text.replace("{" + values[i] + "}", String.valueOf(values[i + 1]));
        }
        return text;
    }
}
