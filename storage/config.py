"""Settings of one partition's log. Frozen: a changed setting is a new value, taken over by ``log.reconfigure``."""

from dataclasses import dataclass
from enum import Enum

from lograft.contract.batch import HEADER_SIZE, MAX_BATCH_BYTES

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Positions in an index are 32 bits wide.
MAX_SEGMENT_BYTES = (1 << 32) - 1 - MAX_BATCH_BYTES


class Durability(Enum):
    """What has happened to a batch before it is acknowledged."""

    FSYNC = "fsync"
    OS = "os"


class CleanupPolicy(Enum):
    """What happens to old records."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_DELETE = "compact,delete"

    @property
    def deletes(self) -> bool:
        """Whether whole old segments are deleted by age and size."""
        return self is not CleanupPolicy.COMPACT

    @property
    def compacts(self) -> bool:
        """Whether only the newest record of each key is kept."""
        return self is not CleanupPolicy.DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Everything that may differ from topic to topic."""

    # A segment is closed and a new one begun when the next batch would make it larger than this. Retention and
    # compaction work on whole closed segments: larger ones mean fewer files and coarser deletion.
    segment_bytes: int = 1 << 30
    # A segment is also closed when its first batch is this old, so that a quiet topic gets cleaned too.
    segment_ms: int = 7 * DAY_MS
    # One index entry per this many bytes of log: a read scans at most so much before it finds its offset.
    index_interval_bytes: int = 16 << 10
    # The largest batch taken, as it comes (compressed), header included.
    max_batch_bytes: int = 8 << 20
    # The most that the records of one batch may unpack to.
    max_uncompressed_bytes: int = 16 << 20
    # Whether an acknowledged batch is on the disk, or only with the operating system (lost when the power fails).
    durability: Durability = Durability.FSYNC
    # After a crash at most about this much of the log's end is read again. A checkpoint costs half a millisecond.
    checkpoint_interval_bytes: int = 64 << 20
    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    # Closed segments are deleted when all their records are older than this; None keeps them for ever.
    retention_ms: int | None = 7 * DAY_MS
    # The oldest closed segments are deleted while the log is larger than this; None sets no limit.
    retention_bytes: int | None = None
    # How long compaction keeps a tombstone, so that a reader that is behind still learns of the deletion.
    delete_retention_ms: int = DAY_MS
    # Compaction waits until this share of the closed segments is new.
    min_compaction_dirty_ratio: float = 0.5
    # Records carry the time of their append instead of the producer's.
    append_time: bool = False
    # Records that claim to be from further ahead than this are refused: they would never grow old.
    max_timestamp_ahead_ms: int = HOUR_MS
    # Batches remembered per producer to recognise a repeat: as many as a producer may have in flight per partition.
    remembered_batches: int = 5
    # A producer that sent nothing for so long is forgotten.
    producer_expiration_ms: int = DAY_MS

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least {least}, not {getattr(self, name)}"
            for name, least in _LEAST.items()
            if getattr(self, name) is not None and getattr(self, name) < least
        ]
        if self.segment_bytes > MAX_SEGMENT_BYTES:
            problems.append(f"segment_bytes must be at most {MAX_SEGMENT_BYTES}: index positions are 32 bits wide")
        if self.max_batch_bytes > MAX_BATCH_BYTES:
            problems.append(f"max_batch_bytes must be at most {MAX_BATCH_BYTES}")
        if self.max_batch_bytes > self.segment_bytes:
            problems.append(
                f"max_batch_bytes ({self.max_batch_bytes}) must not be above segment_bytes ({self.segment_bytes}): "
                "a batch never spans segments"
            )
        if not 0 <= self.min_compaction_dirty_ratio <= 1:
            problems.append("min_compaction_dirty_ratio must be between 0 and 1")
        if problems:
            raise ValueError("; ".join(problems))


_LEAST = {
    "segment_bytes": 1 << 10,
    "segment_ms": 1,
    "index_interval_bytes": 1,
    "max_batch_bytes": HEADER_SIZE + 1,
    "max_uncompressed_bytes": 1,
    "checkpoint_interval_bytes": 1,
    "retention_ms": 0,
    "retention_bytes": 0,
    "delete_retention_ms": 0,
    "max_timestamp_ahead_ms": 0,
    "remembered_batches": 1,
    "producer_expiration_ms": 1,
}
