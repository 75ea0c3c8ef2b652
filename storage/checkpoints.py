"""What a log leaves on disk for its next opening: checkpoint, indexes, producer snapshots.

The owner of the log decides what to store; the writer thread stores it, once everything it speaks of is durable. (When
nothing is queued, the owner may store it itself.) None of it is on the path of an acknowledgement.
"""

from dataclasses import dataclass
from pathlib import Path

from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted
from lograft.contract.small_files import Kind, read_small_file, write_small_file
from lograft.storage.core.producer_state import ProducerStates
from lograft.storage.index import SegmentSummary, SparseIndex, write_index
from lograft.storage.segment import Segment, SegmentFile
from lograft.storage.small_files import CHECKPOINT, producers_from_proto, producers_path, producers_to_proto
from lograft.v1 import storage_pb2

_KEPT_SNAPSHOTS = 2


@dataclass(slots=True)
class Checkpoints:
    """The small files of one log."""

    directory: Path
    disk: Disk
    # The one on disk.
    latest: storage_pb2.PartitionCheckpoint

    def store(self, message: storage_pb2.PartitionCheckpoint, active: SegmentFile, index: "StoredIndex | None") -> None:
        """Store a checkpoint that speaks of everything written so far."""
        self._make_durable(active)
        if index is not None:
            write_index(self.disk, index.path, index.summary, index.index)
        write_small_file(self.disk, self.directory / CHECKPOINT, Kind.CHECKPOINT, message)
        self.latest = message

    def store_closed(
        self, closed: Segment, index: "StoredIndex", next_path: Path, producers: storage_pb2.ProducerSnapshot
    ) -> None:
        """Finish a segment: sync and close it, and store its index and the producers as of its end."""
        self._make_durable(closed.file)
        closed.file.close()
        write_index(self.disk, index.path, index.summary, index.index)
        closed.drop_index()
        write_small_file(self.disk, producers_path(next_path), Kind.PRODUCERS, producers)

    def store_sync_failure(self, trusted_end_offset: int) -> None:
        """Leave word that nothing at or above ``trusted_end_offset`` may be trusted."""
        message = storage_pb2.PartitionCheckpoint()
        message.CopyFrom(self.latest)
        message.close_state = storage_pb2.CLOSE_STATE_SYNC_FAILED
        message.trusted_end_offset = trusted_end_offset
        write_small_file(self.disk, self.directory / CHECKPOINT, Kind.CHECKPOINT, message)

    def remove_old_snapshots(self, segments: tuple[Segment, ...]) -> None:
        """Keep the producer snapshots of the newest segments only: truncation rarely goes further back."""
        for segment in segments[-_KEPT_SNAPSHOTS - 1 : -_KEPT_SNAPSHOTS]:
            self.disk.remove(producers_path(segment.path))

    def producers_before(self, segments: tuple[Segment, ...], position: int, remembered_batches: int) -> ProducerStates:
        """The producers as of a position in the last of ``segments``: the nearest snapshot, and the headers since."""
        producers = ProducerStates(remembered_batches)
        first = 0
        for index in range(len(segments) - 1, -1, -1):
            try:
                stored = read_small_file(
                    producers_path(segments[index].path), Kind.PRODUCERS, storage_pb2.ProducerSnapshot
                )
            except StorageCorrupted:
                continue  # a cache: an earlier one, or the log itself, will do
            if stored is not None:
                first = index
                producers = producers_from_proto(list(stored.producers), remembered_batches)
                break
        for segment in segments[first:]:
            for at, header in segment.headers():
                if segment is segments[-1] and at >= position:
                    break
                producers.note(header)
        return producers

    def _make_durable(self, file: SegmentFile) -> None:
        for written in file.with_predecessors():
            if written.unsynced:
                self.disk.sync_file(written.descriptor)
                written.unsynced = False
            if written.is_new and written.descriptor >= 0:
                self.disk.sync_directory(self.directory)
                written.is_new = False


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """A segment's index as it shall be stored."""

    path: Path
    summary: SegmentSummary
    index: SparseIndex

    @classmethod
    def of_active(cls, segment: Segment) -> "StoredIndex | None":
        """A copy of the active segment's, which goes on growing; None while it is empty."""
        if not segment.size_bytes:
            return None
        return cls(segment.path, segment.current_summary(), segment.builder.index.copy())


def producer_snapshot(offset: int, producers: ProducerStates) -> storage_pb2.ProducerSnapshot:
    """The producers as they are stored beside the segment that begins at ``offset``."""
    return storage_pb2.ProducerSnapshot(offset=offset, producers=producers_to_proto(producers))
