package peer.filters;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Evaluates expressions of SQL92: a line of the standard input has an expression, then names and values of properties,
 * with tabs between and escapes for tab, line feed, carriage return and backslash. The answer is a line with {@code true},
 * {@code false}, or {@code refused}.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> fields = new ArrayList<>();
            for (String field : line.split("\t", -1)) {
                fields.add(unescaped(field));
            }
            Map<String, String> properties = new HashMap<>();
            for (int at = 1; at + 1 < fields.size(); at += 2) {
                properties.put(fields.get(at), fields.get(at + 1));
            }
            out.println(answer(fields.get(0), properties));
        }
        out.flush();
    }

    private static String answer(String text, Map<String, String> properties) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable refusal) {
            return "refused";
        }
        try {
            return String.valueOf(Boolean.TRUE.equals(expression.evaluate(new Message(properties))));
        } catch (Throwable failure) {
            return "false"; // As ExpressionMessageFilter of the broker.
        }
    }

    private static String unescaped(String text) {
        StringBuilder plain = new StringBuilder();
        for (int at = 0; at < text.length(); ++at) {
            char each = text.charAt(at);
            if (each == '\\') {
                char escaped = text.charAt(++at);
                each = escaped == 't' ? '\t' : escaped == 'n' ? '\n' : escaped == 'r' ? '\r' : escaped;
            }
            plain.append(each);
        }
        return plain.toString();
    }

    private static final class Message implements EvaluationContext {
        private final Map<String, String> properties;

        Message(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
