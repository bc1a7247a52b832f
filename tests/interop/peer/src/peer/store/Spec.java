package peer.store;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import peer.Options;

/** A case description: store settings, topics and the steps that fill the store. */
final class Spec {
    final JSONObject json;

    Spec(JSONObject json) {
        this.json = json;
    }

    static Spec read(Path file) throws IOException {
        return new Spec(JSON.parseObject(Files.readString(file)));
    }

    static Spec empty() {
        return new Spec(new JSONObject());
    }

    /** The spec named by {@code --spec}, else the one lying in the case directory, else an empty one. */
    static Spec find(Options options, CaseDir dir) throws IOException {
        String named = options.text("spec", null);
        if (named != null) {
            return read(Path.of(named));
        }
        return Files.exists(dir.spec()) ? read(dir.spec()) : empty();
    }

    long seed() {
        return json.getLongValue("seed", 1);
    }

    boolean filterBitMap() {
        return json.getBooleanValue("filterBitMap");
    }

    Map<String, String> store() {
        return strings("store");
    }

    Map<String, String> broker() {
        return strings("broker");
    }

    JSONArray steps() {
        return list("steps");
    }

    /** Topic name (after padding) to its description. */
    Map<String, JSONObject> topics() {
        Map<String, JSONObject> out = new LinkedHashMap<>();
        for (int i = 0; i < list("topics").size(); i++) {
            JSONObject topic = list("topics").getJSONObject(i);
            out.put(topicName(topic), topic);
        }
        return out;
    }

    private static String topicName(JSONObject topic) {
        StringBuilder name = new StringBuilder(topic.getString("name"));
        int length = topic.getIntValue("padTo", 0);
        while (name.length() < length) {
            name.append((char) ('a' + name.length() % 26));
        }
        return name.toString();
    }

    private JSONArray list(String key) {
        JSONArray found = json.getJSONArray(key);
        return found == null ? new JSONArray() : found;
    }

    private Map<String, String> strings(String key) {
        Map<String, String> out = new LinkedHashMap<>();
        JSONObject found = json.getJSONObject(key);
        if (found != null) {
            found.forEach((k, v) -> out.put(k, String.valueOf(v)));
        }
        return out;
    }
}
