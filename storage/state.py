"""What one log holds: its segments, where it begins and ends, its epochs and producers.

Only the owner of the log changes it: appending (`log`), trimming (`trimming`) and compaction act on this state, and a
checkpoint writes it down.

Invariants between calls:
- ``log_start_offset <= high_watermark <= flushed_end_offset <= log_end_offset``
- segments follow each other without a gap; the last one is the active one.
- epochs and producers are a function of the batches up to ``log_end_offset``.
"""

from dataclasses import dataclass
from pathlib import Path

from lograft.contract.batch import BatchHeader
from lograft.contract.disk import Disk
from lograft.storage.checkpoints import Checkpoints, StoredIndex
from lograft.storage.config import LogConfig
from lograft.storage.core.epoch_history import EpochHistory
from lograft.storage.core.producer_state import ProducerStates
from lograft.storage.recovery import RecoveredLog
from lograft.storage.segment import Segment
from lograft.storage.segments import Segments
from lograft.storage.small_files import epochs_to_proto, producers_to_proto
from lograft.v1 import storage_pb2


@dataclass(slots=True)
class LogState:
    """The state of one log. Offsets that end in ``end`` are exclusive."""

    directory: Path
    disk: Disk
    config: LogConfig
    segments: Segments
    epochs: EpochHistory
    producers: ProducerStates
    checkpoints: Checkpoints
    log_start_offset: int
    log_end_offset: int
    # Written by the writer thread: everything below may be acknowledged.
    flushed_end_offset: int
    # As far as it was told; a log that is not replicated goes by what is flushed.
    committed_end_offset: int
    is_replicated: bool
    compacted_end_offset: int
    # What openings have cut off the end, until the owner has taken note.
    cut_bytes: int
    # How often the end was cut since the log was opened: what was planned before a cut must not be done after it.
    cuts: int = 0

    @classmethod
    def recovered(
        cls, directory: Path, disk: Disk, config: LogConfig, found: RecoveredLog, *, replicated: bool
    ) -> "LogState":
        """The state of a log as it was found on disk."""
        end = found.segments[-1].next_offset
        return cls(
            directory=directory,
            disk=disk,
            config=config,
            segments=Segments(found.segments),
            epochs=found.epochs,
            producers=found.producers,
            checkpoints=Checkpoints(directory, disk, found.checkpoint),
            log_start_offset=found.log_start_offset,
            log_end_offset=end,
            flushed_end_offset=end,
            committed_end_offset=found.high_watermark,
            is_replicated=replicated,
            compacted_end_offset=found.compacted_end_offset,
            cut_bytes=found.checkpoint.cut_bytes + found.report.cut_bytes,
        )

    @property
    def high_watermark(self) -> int:
        """Everything below is committed: on every in-sync replica."""
        return self.committed_end_offset if self.is_replicated else self.flushed_end_offset

    def note(self, segment: Segment, header: BatchHeader) -> int:
        """Take in a batch that goes to the end of ``segment``; its position there."""
        self.epochs.note(header.leader_epoch, header.base_offset)
        if header.producer_id:
            self.producers.note(header)
            self.producers.settle_to(self.flushed_end_offset)
        self.log_end_offset = header.next_offset
        return segment.note(header)

    def roll_back_to_flushed(self) -> None:
        """Forget what was noted and never became durable."""
        end = self.flushed_end_offset
        self.segments.all = tuple(segment for segment in self.segments.all if segment.base_offset <= end)
        active = self.segments.active
        active.roll_back(end, active.file.flushed_bytes)
        self.log_end_offset = end
        latest = self.epochs.latest
        self.epochs.truncate_end(end + 1)
        if latest is not None:  # its reign goes on, even if nothing of it is left
            self.epochs.note(latest, end)
        self.producers.undo_to(end)

    def set_end(self, end_offset: int, producers: ProducerStates) -> None:
        """The log now ends at ``end_offset``, flushed, with these producers."""
        self.log_end_offset = self.flushed_end_offset = end_offset
        self.committed_end_offset = min(self.committed_end_offset, end_offset)
        self.compacted_end_offset = min(self.compacted_end_offset, end_offset)
        self.cuts += 1
        producers.settle_to(end_offset)
        self.producers = producers

    def raise_log_start(self, offset: int) -> None:
        """The log now begins at ``offset``, or where it did if that is later."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.committed_end_offset = max(self.committed_end_offset, self.log_start_offset)
        self.epochs.truncate_start(self.log_start_offset)

    def new_segment(self, base_offset: int) -> Segment:
        """A segment that begins at ``base_offset``; its file is created by the writer."""
        return Segment.create(self.disk, self.directory, base_offset, self.config.index_interval_bytes)

    def checkpoint_message(
        self, close_state: storage_pb2.CloseState = storage_pb2.CLOSE_STATE_OPEN
    ) -> storage_pb2.PartitionCheckpoint:
        """The state as a checkpoint has it. True on disk only once everything noted so far is flushed."""
        active = self.segments.active
        return storage_pb2.PartitionCheckpoint(
            flushed_end_offset=self.log_end_offset,
            flushed_segment_base=active.base_offset,
            flushed_position=active.size_bytes,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            compacted_end_offset=self.compacted_end_offset,
            epochs=epochs_to_proto(self.epochs),
            close_state=close_state,
            cut_bytes=self.cut_bytes,
            producers=producers_to_proto(self.producers),
        )

    def store_checkpoint(self, close_state: storage_pb2.CloseState = storage_pb2.CLOSE_STATE_OPEN) -> None:
        """Store a checkpoint at once, from the owner's thread: only while nothing is queued for the writer."""
        active = self.segments.active
        self.checkpoints.store(self.checkpoint_message(close_state), active.file, StoredIndex.of_active(active))
