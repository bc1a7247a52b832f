package upstream;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.StringJoiner;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the test classes that the lines of its standard input name, relative to RocketMQ's package, or
 * single methods, as CLASS#METHOD.
 *
 * It prints a line with @ and a JSON object for each method that has ended, and one with the key
 * "done" for each class. The process halts at the end of its input, so it does not outlive a killed
 * parent.
 */
public final class Runner {
    private static final String PACKAGE = "org.apache.rocketmq.test.";
    private static final int CAUSES = 4;

    private Runner() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("#");
            Class<?> test = Class.forName(PACKAGE + parts[0]);
            JUnitCore junit = new JUnitCore();
            junit.addListener(new Reporter(out, parts[0]));
            junit.run(parts.length == 1 ? Request.aClass(test) : Request.method(test, parts[1]));
            print(out, Map.of("done", line));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void print(PrintStream out, Map<String, ?> event) {
        // One write, because the tests print too, from threads of their own.
        out.print("\n@" + JSON.toJSONString(event) + "\n");
        out.flush();
    }

    private static final class Reporter extends RunListener {
        private final PrintStream out;
        private final String name;
        private final Set<Description> failed = new HashSet<>();
        private long beganMs = System.currentTimeMillis();

        Reporter(PrintStream out, String name) {
            this.out = out;
            this.name = name;
        }

        @Override
        public void testStarted(Description method) {
            beganMs = System.currentTimeMillis();
        }

        @Override
        public void testFailure(Failure failure) {
            failed.add(failure.getDescription());
            report(failure.getDescription(), "failed", text(failure.getException()));
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            failed.add(failure.getDescription());
            report(failure.getDescription(), "ignored", text(failure.getException()));
        }

        @Override
        public void testIgnored(Description method) {
            beganMs = System.currentTimeMillis();
            report(method, "ignored", "");
        }

        @Override
        public void testFinished(Description method) {
            if (!failed.contains(method)) {
                report(method, "passed", "");
            }
        }

        private void report(Description method, String outcome, String text) {
            Map<String, Object> event = new HashMap<>();
            event.put("class", name);
            // A failure before any method has the class as its place.
            event.put("method", method.getMethodName() == null ? "" : method.getMethodName());
            event.put("outcome", outcome);
            event.put("seconds", (System.currentTimeMillis() - beganMs) / 1000.0);
            event.put("text", text);
            print(out, event);
        }

        private static String text(Throwable error) {
            StringJoiner causes = new StringJoiner(" <- ");
            Throwable cause = error;
            for (int i = 0; cause != null && i < CAUSES; i++, cause = cause.getCause()) {
                String message = String.valueOf(cause.getMessage()).replace('\n', ' ');
                causes.add(cause.getClass().getSimpleName() + ": " + message);
            }
            for (StackTraceElement place : error.getStackTrace()) {
                if (place.getClassName().startsWith(PACKAGE)) {
                    return causes + " at " + place.getFileName() + ":" + place.getLineNumber();
                }
            }
            return causes.toString();
        }
    }
}
