package org.rmqstore.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
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

    /** Whether a folder is there and holds a file of a store, whose name is 20 digits. */
    static boolean hasFiles(Path folder, Texts texts) {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "[0-9]*")) {
            for (Path each : files) {
                if (each.getFileName().toString().matches("[0-9]{20}")) {
                    return true;
                }
            }
            return false;
        } catch (NoSuchFileException | NotDirectoryException error) {
            return false;
        } catch (IOException error) {
            throw refusal(folder.toString(), error, texts);
        }
    }

    /** The name of this host, as the kernel has it: no resolver need know it. */
    static String host() {
        try {
            return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
        } catch (IOException error) {
            return "unknown";
        }
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
