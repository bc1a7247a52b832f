"""Tests of an open store: its verbs, its threads, what it is asked wrongly."""
