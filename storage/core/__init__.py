"""Decisions of the storage engine: pure, no I/O, no clock, no threads, no randomness."""
