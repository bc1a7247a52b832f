package org.rmqstore.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.SparkSession;

/**
 * A Python process on the driver that validates options, chooses columns and conditions, and plans.
 *
 * <p>One line of JSON goes in and one comes out. A process is kept for the next query and ends with
 * this machine, which closes its standard input. Queries planned at the same time have a process
 * each.
 */
final class Planner {
    static final ObjectMapper JSON =
            new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

    private static final int KEPT = 2;
    private static final Deque<Planner> IDLE = new ArrayDeque<>();
    private static final String CURE =
            "planning needs a Python that has rmqstore; name it by spark.pyspark.python or "
                    + "PYSPARK_PYTHON";

    private final String python;
    private final Process process;
    private final OutputStream requests;
    private final BufferedReader answers;

    private Planner(String python) {
        this.python = python;
        try {
            process = new ProcessBuilder(python, "-m", "rmqstore.spark.jvm.planner")
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
        } catch (IOException error) {
            throw new StoreException(StoreException.STORE, CURE + ": " + error.getMessage());
        }
        requests = process.getOutputStream();
        answers = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    }

    /** A request for {@link #ask} or {@link #checked}. */
    static ObjectNode request(String call) {
        ObjectNode request = JSON.createObjectNode();
        request.put("call", call);
        request.put("release", NativeSegment.release());
        return request;
    }

    /** The same with the options of a query. */
    static ObjectNode request(String call, Map<String, String> options) {
        ObjectNode request = request(call);
        request.set("options", JSON.valueToTree(options));
        return request;
    }

    /** Returns the answer of any planner; throws what the planner raised. */
    static JsonNode ask(ObjectNode request) {
        Planner planner = taken();
        try {
            return planner.checked(request);
        } finally {
            planner.keep();
        }
    }

    /** A planner that is used by the caller alone until {@link #keep}. */
    static Planner taken() {
        return idle().orElseGet(() -> new Planner(executable()));
    }

    /** Returns the answer; throws what the planner raised. */
    JsonNode checked(ObjectNode request) {
        JsonNode answer = answer(request);
        if (answer.has("error")) {
            throw new StoreException(
                    answer.get("error").asText(), answer.get("text").asText());
        }
        return answer;
    }

    /** Returns an answer as a value of this type. */
    static <T> T read(JsonNode answer, Class<T> type) {
        try {
            return JSON.treeToValue(answer, type);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException("the planner answered " + answer, error);
        }
    }

    private static Optional<Planner> idle() {
        String python = executable();
        synchronized (IDLE) {
            Planner found;
            while ((found = IDLE.poll()) != null) {
                if (found.process.isAlive() && found.python.equals(python)) {
                    return Optional.of(found);
                }
                found.end();
            }
        }
        return Optional.empty();
    }

    /** Ends the use of a planner, which serves later queries unless its process has ended. */
    void keep() {
        synchronized (IDLE) {
            if (IDLE.size() < KEPT) {
                IDLE.push(this);
                return;
            }
        }
        end();
    }

    private void end() {
        process.destroy();
    }

    private JsonNode answer(ObjectNode request) {
        try {
            requests.write((JSON.writeValueAsString(request) + "\n").getBytes(StandardCharsets.UTF_8));
            requests.flush();
            String line = answers.readLine();
            if (line != null) {
                return JSON.readTree(line);
            }
        } catch (IOException error) {
            end();
            throw new StoreException(StoreException.STORE, CURE + ": " + error.getMessage());
        }
        end();
        throw new StoreException(
                StoreException.STORE, CURE + ": " + python + " ended without an answer");
    }

    private static String executable() {
        for (String name : new String[] {"spark.pyspark.driver.python", "spark.pyspark.python"}) {
            String found = SparkSession.active().conf().get(name, "");
            if (!found.isEmpty()) {
                return found;
            }
        }
        String given = System.getenv("PYSPARK_PYTHON");
        return given == null || given.isEmpty() ? "python3" : given;
    }
}
