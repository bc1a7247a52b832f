"""Replica groups in virtual time: seeds that are kept, and what the simulator itself must do."""
