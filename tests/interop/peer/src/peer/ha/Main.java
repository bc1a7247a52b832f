package peer.ha;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import peer.Options;
import peer.Timers;

/** Runs one replica and obeys line commands; ../../../README.md describes both. */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        Timers.loosen();
        System.exit(run(args));
    }

    /** Returns the exit status, at the end of the standard input or at the command to quit. */
    public static int run(String[] args) {
        long begin = System.nanoTime();
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Events events = new Events(out);
        if (args.length == 0) {
            System.err.println("usage: peer.ha.Main default-master|default-slave|autoswitch-master|autoswitch-slave"
                + " --dir DIR [options]\ncommands on the standard input:\n" + Replica.COMMANDS);
            return 2;
        }
        try {
            Options options = new Options(args);
            String role = options.word(0);
            boolean switching = role.startsWith("autoswitch-");
            boolean master = role.endsWith("-master");
            if (!switching && !role.startsWith("default-") || !master && !role.endsWith("-slave")) {
                throw new IllegalArgumentException("unknown role " + role);
            }
            Replica replica = new Replica(options, events, switching, master);
            replica.open();
            if (master && switching) {
                long id = options.bigNumber("broker-id", 1);
                replica.becomeMaster(options.number("epoch", 1),
                    options.has("sync-state-set") ? Options.ids(options.need("sync-state-set")) : Set.of(id));
            } else if (!master) {
                replica.becomeSlave(options.number("epoch", 1), options.text("master", null));
            }
            Map<String, Object> ready = replica.state();
            ready.put("pid", ProcessHandle.current().pid());
            ready.put("startMs", (System.nanoTime() - begin) / 1_000_000);
            events.emit("ready", ready);
            replica.watch(options.bigNumber("watch-ms", 100));
            int code = obey(replica, events);
            replica.close();
            events.emit("closed");
            return code;
        } catch (Throwable e) {
            events.emit("error", "in", "start", "message", e.toString());
            e.printStackTrace();
            return 1;
        }
    }

    private static int obey(Replica replica, Events events) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] w = line.trim().split("\\s+");
            if (w[0].isEmpty()) {
                continue;
            }
            if (w[0].equals("quit")) {
                return 0;
            }
            try {
                Map<String, Object> result = command(replica, w);
                result.put("line", line.trim());
                events.emit("done", result);
            } catch (Exception e) {
                events.emit("error", "in", "command", "line", line.trim(), "message", e.toString());
            }
        }
        return 0;
    }

    private static Map<String, Object> command(Replica r, String[] w) throws Exception {
        switch (w[0]) {
            case "put":
                return r.put(Integer.parseInt(w[1]), Integer.parseInt(w[2]));
            case "status":
                return r.state();
            case "queues":
                return r.queues();
            case "hash":
                return r.hash(w.length > 1 ? Long.parseLong(w[1]) : -1, w.length > 2 ? Long.parseLong(w[2]) : -1);
            case "delete-first":
                return r.deleteFirstFile();
            case "promote":
                r.becomeMaster(Integer.parseInt(w[1]), Options.ids(w[2]));
                return r.state();
            case "bump":
                r.bump(Integer.parseInt(w[1]));
                return r.state();
            case "disconnect":
                r.disconnect();
                return r.state();
            case "syncset":
                return r.setSyncStateSet(Options.ids(w[1]));
            case "skip":
                r.skipTo(Long.parseLong(w[1]));
                return Events.map();
            default:
                throw new IllegalArgumentException("unknown command " + w[0]);
        }
    }
}
