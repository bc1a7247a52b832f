"""What two replicas say to each other: frames, and the pure machines of either side of a link."""
