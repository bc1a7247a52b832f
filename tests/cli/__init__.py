"""The command line: in this process where that tells enough, as a process where pipes, signals and
missing packages matter."""
