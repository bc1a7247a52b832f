package peer.store;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import peer.Options;

/** Entry point: the first argument names a sub-command, the rest are its options. */
public final class Main {
    private static final String USAGE = """
        usage: peer.store.Main COMMAND [options]

          write       --dir CASE --spec FILE.json [--crash]
          dump        --dir DIR [--spec FILE.json] [--set k=v ...] [--keys] [--probe]
                      [--manifest FILE.jsonl] [--quiet] [--in-place]
          append-raw  --dir CASE --from DIR [--spec FILE.json] [--set k=v ...] [--chunk BYTES]
          bench       put|batchput|get|recover --dir DIR [options]
          serve       obeys commands from the standard input, each a JSON array of words on a line""";

    private Main() {
    }

    public static void main(String[] argv) throws Exception {
        if (argv.length == 0) {
            System.err.println(USAGE);
            System.exit(2);
        }
        int status = argv[0].equals("serve") ? serve() : run(argv);
        System.out.flush();
        // The store leaves threads and shutdown hooks that have nothing left to do: halt, not exit.
        Runtime.getRuntime().halt(status);
    }

    /** Runs the commands of the standard input up to its end; after the output of each comes a line with its status. */
    private static int serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int status = run(JSON.parseArray(line, String.class).toArray(new String[0]));
            System.out.println(new JSONObject().fluentPut("type", "end").fluentPut("status", status));
            System.out.flush();
        }
        return 0;
    }

    /** Returns the exit status of a command. */
    public static int run(String... argv) {
        String command = argv[0];
        try {
            Options options = new Options(Arrays.copyOfRange(argv, 1, argv.length));
            return switch (command) {
                case "write" -> Write.run(options);
                case "dump" -> Dump.run(options);
                case "append-raw" -> AppendRaw.run(options);
                case "bench" -> Bench.run(options);
                default -> throw new IllegalArgumentException("unknown command " + command);
            };
        } catch (IllegalArgumentException e) {
            System.err.println(e.getMessage());
            System.err.println(USAGE);
            return 2;
        } catch (Exception e) {
            e.printStackTrace();
            return 3;
        }
    }
}
