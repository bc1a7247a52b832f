package peer;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The command line: words, then {@code --name value} pairs. A name without a value is a switch;
 * {@code --set key=value} and {@code --set-broker key=value} may be given many times.
 */
public final class Options {
    private final List<String> words = new ArrayList<>();
    private final Map<String, String> values = new LinkedHashMap<>();
    private final Map<String, String> storeSettings = new LinkedHashMap<>();
    private final Map<String, String> brokerSettings = new LinkedHashMap<>();

    public Options(String[] args) {
        for (int i = 0; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                words.add(args[i]);
                continue;
            }
            String name = args[i].substring(2);
            String value = i + 1 < args.length && !args[i + 1].startsWith("--") ? args[++i] : "true";
            switch (name) {
                case "set" -> split(storeSettings, value);
                case "set-broker" -> split(brokerSettings, value);
                default -> values.put(name, value);
            }
        }
    }

    private static void split(Map<String, String> into, String value) {
        int equals = value.indexOf('=');
        if (equals < 1) {
            throw new IllegalArgumentException("expected key=value, found " + value);
        }
        into.put(value.substring(0, equals), value.substring(equals + 1));
    }

    /** Properties of RocketMQ's MessageStoreConfig. */
    public Map<String, String> storeSettings() {
        return storeSettings;
    }

    /** Properties of RocketMQ's BrokerConfig. */
    public Map<String, String> brokerSettings() {
        return brokerSettings;
    }

    public String word(int index) {
        if (index >= words.size()) {
            throw new IllegalArgumentException("argument " + (index + 1) + " is missing");
        }
        return words.get(index);
    }

    public boolean has(String name) {
        return values.containsKey(name);
    }

    public String text(String name, String fallback) {
        return values.getOrDefault(name, fallback);
    }

    public String need(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is required");
        }
        return value;
    }

    public Path path(String name) {
        return Path.of(need(name));
    }

    public int number(String name, int fallback) {
        return has(name) ? Integer.parseInt(values.get(name)) : fallback;
    }

    public long bigNumber(String name, long fallback) {
        return has(name) ? Long.parseLong(values.get(name)) : fallback;
    }

    public boolean flag(String name) {
        return Boolean.parseBoolean(values.getOrDefault(name, "false"));
    }

    /** Broker ids of a list such as {@code 1,2}. */
    public static Set<Long> ids(String list) {
        return Arrays.stream(list.split(",")).map(Long::valueOf)
            .collect(Collectors.toCollection(LinkedHashSet::new));
    }
}
