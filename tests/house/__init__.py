"""Rules of the tree that no other tool checks."""
