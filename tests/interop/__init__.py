"""The real Java store and rmqstore: each reads files and frames of the other."""
