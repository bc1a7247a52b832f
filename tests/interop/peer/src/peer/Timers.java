package peer;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * How late Linux may wake threads that sleep.
 *
 * Dozens of RocketMQ's threads look for work every millisecond or ten. With a longer slack the
 * kernel wakes many of them at once and each less often, which halves what an idle server costs.
 */
public final class Timers {
    private Timers() {
    }

    /**
     * Lets the calling thread, and those that it and its descendants start, wake up to
     * peer.timer.slack.ms milliseconds late. Without that property nothing changes.
     */
    public static void loosen() throws IOException {
        Long slackMs = Long.getLong("peer.timer.slack.ms");
        if (slackMs == null) {
            return;
        }
        Path thread = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName();
        Path slack = Path.of("/proc").resolve(thread).resolve("timerslack_ns");
        Files.writeString(slack, String.valueOf(slackMs * 1_000_000));
    }
}
