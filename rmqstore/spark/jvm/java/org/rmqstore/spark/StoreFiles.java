package org.rmqstore.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.spark.storage.StorageUtils;

/** StoreFiles of a store and memory to read them into, with the errors of rmqstore. */
final class StoreFiles {
    private StoreFiles() {}

    static FileChannel open(String path, Texts texts) {
        try {
            return FileChannel.open(Path.of(path), StandardOpenOption.READ);
        } catch (NoSuchFileException error) {
            throw missing(path, texts);
        } catch (IOException error) {
            throw refusal(path, error, texts);
        }
    }

    /** Fills a buffer from its beginning up to {@code size}; returns less at the file's end only. */
    static int read(FileChannel file, String path, ByteBuffer into, int size, long at, Texts texts) {
        into.clear().limit(size);
        try {
            while (into.hasRemaining() && file.read(into, at + into.position()) > 0) {
                continue;
            }
        } catch (IOException error) {
            throw refusal(path, error, texts);
        }
        return into.position();
    }

    static void close(FileChannel file, String path, Texts texts) {
        try {
            file.close();
        } catch (IOException error) {
            throw refusal(path, error, texts);
        }
    }

    /** Gives memory back at once: the collector may be late. */
    static void free(ByteBuffer buffer) {
        if (buffer != null) {
            StorageUtils.dispose(buffer);
        }
    }

    private static StoreException missing(String path, Texts texts) {
        return new StoreException(StoreException.NOT_FOUND, texts.of("missing", "path", path));
    }

    private static StoreException refusal(String path, IOException error, Texts texts) {
        String reason = error instanceof FileSystemException refused ? refused.getReason() : null;
        if ("Not a directory".equals(reason)) {
            return missing(path, texts);
        }
        return new StoreException(
                StoreException.DISK, path + ": " + (reason == null ? error.toString() : reason));
    }
}
