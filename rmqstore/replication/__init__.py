"""What replicas of a store agree on."""
