"""Tests of the benchmarks themselves: their runs, their figures, their pages."""
