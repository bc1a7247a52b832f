"""Deliberate faults of one line that the simulator's default seeds have to find."""
