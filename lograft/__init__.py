"""Lograft: a distributed commit log that coordinates itself."""

__version__ = "0.1.0.dev0"
