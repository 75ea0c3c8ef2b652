"""What every part of Lograft agrees on: ids, errors, the batch format, and how bytes become durable.

Imports nothing else of ours. Its Python is hand-written; the generated code is ``lograft.v1``.
"""
