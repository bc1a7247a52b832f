package peer.store;

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
          bench       put|batchput|get|recover --dir DIR [options]""";

    private Main() {
    }

    public static void main(String[] argv) throws Exception {
        if (argv.length == 0) {
            System.err.println(USAGE);
            System.exit(2);
        }
        String command = argv[0];
        int status;
        try {
            Options options = new Options(Arrays.copyOfRange(argv, 1, argv.length));
            status = switch (command) {
                case "write" -> Write.run(options);
                case "dump" -> Dump.run(options);
                case "append-raw" -> AppendRaw.run(options);
                case "bench" -> Bench.run(options);
                default -> throw new IllegalArgumentException("unknown command " + command);
            };
        } catch (IllegalArgumentException e) {
            System.err.println(e.getMessage());
            System.err.println(USAGE);
            status = 2;
        } catch (Exception e) {
            e.printStackTrace();
            status = 3;
        }
        System.out.flush();
        // The store leaves threads and shutdown hooks that have nothing left to do: halt, not exit.
        Runtime.getRuntime().halt(status);
    }
}
