"""Tests of single C functions, called through cffi without the binding."""
