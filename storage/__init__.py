"""One broker's disk: partition logs that lose nothing they acknowledged.

Start at `PartitionLog` (one partition) and `DataDirectory` (all partitions of a broker); storage/README.md describes
the files, the invariants and the life of an append.
"""

from lograft.storage.config import CleanupPolicy, Durability, LogConfig
from lograft.storage.directory import DataDirectory
from lograft.storage.log import PartitionLog
from lograft.storage.recovery import RecoveryReport
from lograft.storage.writer import GroupCommitWriter, PendingAppend

__all__ = [
    "CleanupPolicy",
    "DataDirectory",
    "Durability",
    "GroupCommitWriter",
    "LogConfig",
    "PartitionLog",
    "PendingAppend",
    "RecoveryReport",
]
