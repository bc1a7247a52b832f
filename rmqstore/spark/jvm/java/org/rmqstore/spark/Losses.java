package org.rmqstore.spark;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a task left out, by the rules of its options. */
final class Losses {
    /** A place whose bytes are not a readable message. */
    record Damage(String path, long offset, long size, String error) {}

    private static final Logger LOG = LoggerFactory.getLogger("rmqstore.spark");

    private final Plan.Reading reading;
    private final Texts texts;
    private final List<String> gone = new ArrayList<>();
    private List<Damage> unreported = new ArrayList<>();
    private Damage first;
    private long count;
    private long bytes;

    Losses(Plan.Reading reading) {
        this.reading = reading;
        this.texts = new Texts(reading.texts());
    }

    boolean fails() {
        return reading.onCorrupt().equals("fail");
    }

    void add(Damage damage) {
        if (first == null) {
            first = damage;
        }
        ++count;
        bytes += damage.size();
        if (reading.onCorrupt().equals("row")) {
            unreported.add(damage);
        }
    }

    /**
     * Counts a split whose file, or a queue's, was deleted since planning; throws other errors, and
     * one where this host has no file of the log, which is no deletion.
     */
    void addGone(Plan.Split split, StoreException error) {
        if (!error.isKind(StoreException.NOT_FOUND)) {
            throw error;
        }
        Path folder = Path.of(split.path()).getParent();
        if (!StoreFiles.hasFiles(folder, texts)) {
            throw new StoreException(
                    StoreException.NOT_FOUND,
                    texts.of("hidden", "folder", folder, "host", StoreFiles.host()));
        }
        if (reading.failOnDataLoss()) {
            throw new StoreException(
                    StoreException.NOT_FOUND,
                    texts.of(
                            "gone", "path", split.path(), "error", error.text(), "size",
                            split.stop() - split.start(), "start", split.start()));
        }
        gone.add(split.path() + " [" + split.start() + ", " + split.stop() + ")");
    }

    /** How many places have no row yet. */
    int unreported() {
        return unreported.size();
    }

    /** Returns the damage without a row and counts it as reported. */
    List<Damage> taken() {
        List<Damage> taken = unreported;
        unreported = new ArrayList<>();
        return taken;
    }

    /** Logs what was left out, in all. */
    void warn() {
        if (first != null) {
            LOG.warn(texts.of(
                    "leftOut", "count", count, "size", bytes, "error", first.error()));
        }
        if (!gone.isEmpty()) {
            LOG.warn(texts.of("lost", "places", String.join(", ", gone)));
        }
    }
}
