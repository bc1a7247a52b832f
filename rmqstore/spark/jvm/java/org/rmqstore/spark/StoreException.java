package org.rmqstore.spark;

/**
 * An error of rmqstore. Its message begins with the name of the Python class of the same error, and
 * PySpark makes an exception of its own of this kind.
 */
final class StoreException extends IllegalArgumentException {
    private static final long serialVersionUID = 1;
    static final String CORRUPTION = "CorruptionError";
    static final String NOT_FOUND = "NotFoundError";
    static final String DISK = "DiskError";
    static final String STORE = "StoreError";

    private final String kind;
    private final String text;

    StoreException(String kind, String text) {
        super("rmqstore.errors." + kind + ": " + text);
        this.kind = kind;
        this.text = text;
    }

    boolean isKind(String other) {
        return kind.equals(other);
    }

    /** The message alone. */
    String text() {
        return text;
    }

    @Override
    public String toString() {
        return getMessage();
    }
}
