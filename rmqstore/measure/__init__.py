"""Measured work on a store: the workloads of benchmarks, their timing, and a stream of puts."""
