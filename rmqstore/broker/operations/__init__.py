"""What a broker does for its clients, as typed calls: no frames, no headers, no connections."""
