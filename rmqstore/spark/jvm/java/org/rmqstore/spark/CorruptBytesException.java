package org.rmqstore.spark;

/** What the core found wrong with bytes that were handed to it. */
final class CorruptBytesException extends RuntimeException {
    private static final long serialVersionUID = 1;

    CorruptBytesException(String text) {
        super(text);
    }
}
