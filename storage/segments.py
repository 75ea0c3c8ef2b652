"""The segments of one log, in order: finding an offset or a time, and reading from there.

The owner of the log replaces the tuple, never changes it, so that readers in other threads keep a consistent view and
no lock is needed. A reader that loses a race against deletion or compaction looks again.
"""

from bisect import bisect_right
from operator import attrgetter

from lograft.contract.errors import CorruptBatch, StorageCorrupted
from lograft.contract.records import decode_stored
from lograft.storage.segment import Segment

_base_offset = attrgetter("base_offset")


class Segments:
    """One or more segments that follow each other without a gap; the last one is active."""

    __slots__ = ("all",)

    def __init__(self, segments: list[Segment]) -> None:
        self.all: tuple[Segment, ...] = tuple(segments)

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self.all[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, what is still queued included."""
        return sum(segment.size_bytes for segment in self.all)

    def holding(self, offset: int) -> int:
        """Index of the segment in which ``offset`` lies or would lie."""
        return max(bisect_right(self.all, offset, key=_base_offset) - 1, 0)

    def add(self, segment: Segment) -> None:
        """Begin a new active segment."""
        self.all = (*self.all, segment)

    def replace(self, old: tuple[Segment, ...], new: Segment) -> None:
        """Put one segment where neighbouring ones were."""
        first = self.all.index(old[0])
        self.all = (*self.all[:first], new, *self.all[first + len(old) :])

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes | None:
        """Whole, checked batches from the one that holds ``offset`` on; empty if there are none below ``end_offset``.

        None if a segment went away meanwhile, or its index was wrong: look again. `StorageCorrupted` for damaged bytes.
        """
        segments = self.all
        for segment in segments[self.holding(offset) :]:
            if not segment.file.flushed_bytes:
                continue  # nothing there yet, perhaps not even the file
            try:
                data = segment.read_batches(offset, max_bytes, end_offset)
            except (CorruptBatch, FileNotFoundError) as error:
                if segment not in self.all or self._mends(segment):
                    return None
                raise _corrupted(segment, error) from None
            if data:
                return data
        return b""

    def first_not_older(self, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record from ``start_offset`` on that is not older than ``timestamp_ms``."""
        for segment in self.all:
            try:
                found = _first_not_older_in(segment, timestamp_ms, start_offset)
            except (CorruptBatch, FileNotFoundError) as error:
                if segment not in self.all or self._mends(segment):
                    return self.first_not_older(timestamp_ms, start_offset)
                raise _corrupted(segment, error) from None
            if found is not None:
                return found
        return None

    def _mends(self, segment: Segment) -> bool:
        """Whether bytes that are no batch were found only because of a wrong index, which is mended now."""
        try:
            return segment.distrust_index()
        except (CorruptBatch, FileNotFoundError):
            return False


def _first_not_older_in(segment: Segment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    if segment.max_timestamp_ms < timestamp_ms or not segment.file.flushed_bytes:
        return None
    for position, header in segment.headers(segment.builder.index.position_for_time(timestamp_ms)):
        if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
            continue
        for record in decode_stored(segment.batch_at(position, header)).rows():
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return record.offset, record.timestamp_ms
    return None


def _corrupted(segment: Segment, error: CorruptBatch | FileNotFoundError) -> StorageCorrupted:
    if isinstance(error, CorruptBatch):
        return StorageCorrupted(str(segment.path), error.position, error.problem)
    return StorageCorrupted(str(segment.path), 0, "the file is missing")
