package org.rmqstore.spark;

/** An error of rmqstore; its text begins with the name of the Python class of the same error. */
final class StoreException extends RuntimeException {
    private static final long serialVersionUID = 1;
    static final String CORRUPTION = "CorruptionError";
    static final String NOT_FOUND = "NotFoundError";
    static final String DISK = "DiskError";
    static final String STORE = "StoreError";

    private final String kind;

    StoreException(String kind, String text) {
        super(text);
        this.kind = kind;
    }

    boolean isKind(String other) {
        return kind.equals(other);
    }

    @Override
    public String toString() {
        return "rmqstore.errors." + kind + ": " + getMessage();
    }
}
