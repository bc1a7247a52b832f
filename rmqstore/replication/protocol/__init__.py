"""The protocols between two replicas: frames, and the pure machines of both sides of a link."""
