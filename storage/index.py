"""The sparse index of a segment: where to begin to look for an offset or a time.

Two files, ``.index`` (offset to position) and ``.timeindex`` (the same rows by time), are caches of what the log says:
written when a segment is closed and at checkpoints, checked by CRC when read, and made again from the log when they are
missing, short or wrong. Their bytes are described in docs/formats/index.md.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from lograft.contract.batch import BatchHeader
from lograft.contract.disk import Disk

MAGIC = b"LGIX"
VERSION = 1
KIND_OFFSETS = 1
KIND_TIMES = 2
# magic, version, kind, CRC-32C of all that follows, rows, base offset, next offset, log bytes, first and newest append
# time, largest record timestamp
_HEADER = struct.Struct("<4sHHIIQQQQQQ")
_CRC_COVERS_FROM = 12
_POSITION_MASK = 0xFFFFFFFF
MAX_OFFSET_DELTA = 0xFFFFFFFF


class SegmentSummary(NamedTuple):
    """What is known of a segment without reading it."""

    base_offset: int
    next_offset: int
    log_bytes: int
    first_append_ms: int
    newest_append_ms: int
    max_timestamp_ms: int


@dataclass(slots=True)
class SparseIndex:
    """Rows of (offset delta, position), ascending in both, and for each the largest timestamp before it.

    One writer appends, any thread may look up meanwhile: a row counts once it is in ``places``.
    """

    # Offset delta in the upper, position in the lower 32 bits: one number to bisect.
    places: "array[int]" = field(default_factory=lambda: array("Q"))
    # Largest record timestamp of the segment before the row's position.
    times_before: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, offset_delta: int, position: int, max_timestamp_before_ms: int) -> None:
        """Append a row for the batch at ``position``."""
        self.times_before.append(max_timestamp_before_ms)
        self.places.append(offset_delta << 32 | position)

    def position_for_offset(self, offset_delta: int) -> int:
        """A position at or before the batch that holds the offset."""
        places = self.places  # another thread may put a shorter one in its place
        row = bisect_right(places, min(offset_delta, MAX_OFFSET_DELTA) << 32 | _POSITION_MASK) - 1
        return places[row] & _POSITION_MASK if row >= 0 else 0

    def position_before(self, position: int) -> int:
        """Position of the last row before ``position``; 0 if there is none."""
        places = self.places
        row = bisect_left(places, position, key=lambda place: place & _POSITION_MASK) - 1
        return places[row] & _POSITION_MASK if row >= 0 else 0

    def position_for_time(self, timestamp_ms: int) -> int:
        """A position such that every batch before it is older than ``timestamp_ms``."""
        places, times_before = self.places, self.times_before
        row = bisect_left(times_before, timestamp_ms, 0, min(len(places), len(times_before))) - 1
        return places[row] & _POSITION_MASK if row >= 0 else 0

    def last_position(self) -> int:
        """Position of the last row; -1 if there is none."""
        return self.places[-1] & _POSITION_MASK if self.places else -1

    def truncate(self, end_position: int) -> None:
        """Drop the rows at or after ``end_position``."""
        keep = len(self.places)
        while keep and self.places[keep - 1] & _POSITION_MASK >= end_position:
            keep -= 1
        self.places, self.times_before = self.places[:keep], self.times_before[:keep]

    def copy(self) -> "SparseIndex":
        """An independent copy."""
        return SparseIndex(self.places[:], self.times_before[:])


class IndexBuilder:
    """Adds a row to an index for every so many bytes of log, and keeps the segment's summary."""

    __slots__ = (
        "first_append_ms",
        "index",
        "interval_bytes",
        "max_timestamp_ms",
        "newest_append_ms",
        "next_row_at",
    )

    def __init__(self, interval_bytes: int) -> None:
        self.index = SparseIndex()
        self.interval_bytes = interval_bytes
        self.next_row_at = 0
        self.first_append_ms = 0
        self.newest_append_ms = 0
        self.max_timestamp_ms = 0

    def resume(self, summary: SegmentSummary, index: SparseIndex) -> None:
        """Go on from an index that was read from disk."""
        self.index = index
        self.next_row_at = index.last_position() + self.interval_bytes if index.places else 0
        self.first_append_ms = summary.first_append_ms
        self.newest_append_ms = summary.newest_append_ms
        self.max_timestamp_ms = summary.max_timestamp_ms

    def note(self, header: BatchHeader, base_offset: int, position: int) -> None:
        """Take in the batch at ``position`` of the segment that begins at ``base_offset``."""
        # Too far off for a row: without one, finding it takes longer, no more.
        if position >= self.next_row_at and header.base_offset - base_offset <= MAX_OFFSET_DELTA:
            self.index.add(header.base_offset - base_offset, position, self.max_timestamp_ms)
            self.next_row_at = position + self.interval_bytes
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp_ms)
        self.newest_append_ms = max(self.newest_append_ms, header.append_timestamp_ms)
        if not self.first_append_ms:
            self.first_append_ms = header.append_timestamp_ms

    def summary(self, base_offset: int, next_offset: int, log_bytes: int) -> SegmentSummary:
        """The summary of the segment, if it spans these offsets and bytes."""
        times = self.first_append_ms, self.newest_append_ms, self.max_timestamp_ms
        return SegmentSummary(base_offset, next_offset, log_bytes, *times)

    def copy(self) -> "IndexBuilder":
        """An independent copy."""
        twin = IndexBuilder(self.interval_bytes)
        twin.index = self.index.copy()
        twin.next_row_at = self.next_row_at
        twin.first_append_ms = self.first_append_ms
        twin.newest_append_ms = self.newest_append_ms
        twin.max_timestamp_ms = self.max_timestamp_ms
        return twin

    def truncate(self, end_position: int) -> None:
        """Forget what lies at or after ``end_position``. The times stay as upper bounds."""
        self.index.truncate(end_position)
        self.next_row_at = self.index.last_position() + self.interval_bytes if self.index.places else 0
        if end_position == 0:
            self.first_append_ms = self.newest_append_ms = self.max_timestamp_ms = 0


def offset_index_path(log_path: Path) -> Path:
    """Path of the offset index beside a segment."""
    return log_path.with_suffix(".index")


def time_index_path(log_path: Path) -> Path:
    """Path of the time index beside a segment."""
    return log_path.with_suffix(".timeindex")


def encode_index(kind: int, summary: SegmentSummary, rows: "array[int]") -> bytes:
    """The bytes of an index file."""
    if sys.byteorder == "big":  # the file is little-endian
        rows = array("Q", rows)
        rows.byteswap()
    body = _HEADER.pack(MAGIC, VERSION, kind, 0, len(rows), *summary)[_CRC_COVERS_FROM:] + rows.tobytes()
    crc = google_crc32c.value(body)
    return _HEADER.pack(MAGIC, VERSION, kind, crc, len(rows), *summary)[:_CRC_COVERS_FROM] + body


def decode_index(data: bytes, kind: int) -> tuple[SegmentSummary, "array[int]"] | None:
    """Summary and rows of an index file; None if it is not sound (a cache, so no more is said)."""
    if len(data) < _HEADER.size:
        return None
    magic, version, found_kind, crc, rows, *numbers = _HEADER.unpack_from(data)
    if (magic, version, found_kind) != (MAGIC, VERSION, kind) or len(data) != _HEADER.size + 8 * rows:
        return None
    if google_crc32c.value(data[_CRC_COVERS_FROM:]) != crc:
        return None
    column = array("Q", data[_HEADER.size :])
    if sys.byteorder == "big":
        column.byteswap()
    return SegmentSummary(*numbers), column


def write_index(disk: Disk, log_path: Path, summary: SegmentSummary, index: SparseIndex) -> None:
    """Write both index files. Not synced: the CRC finds out whether they survived."""
    for path, kind, rows in (
        (offset_index_path(log_path), KIND_OFFSETS, index.places),
        (time_index_path(log_path), KIND_TIMES, index.times_before),
    ):
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(encode_index(kind, summary, rows))
        disk.rename(temporary, path)


def read_index(log_path: Path) -> tuple[SegmentSummary, SparseIndex] | None:
    """Summary and index of a segment; None if either file is missing, damaged, or does not fit the other."""
    try:
        by_offset = decode_index(offset_index_path(log_path).read_bytes(), KIND_OFFSETS)
        by_time = decode_index(time_index_path(log_path).read_bytes(), KIND_TIMES)
    except OSError:
        return None
    if by_offset is None or by_time is None:
        return None
    if by_offset[0] != by_time[0] or len(by_offset[1]) != len(by_time[1]):
        return None
    return by_offset[0], SparseIndex(by_offset[1], by_time[1])


def remove_index(disk: Disk, log_path: Path) -> None:
    """Remove both index files: the segment is about to become another one."""
    disk.remove(offset_index_path(log_path))
    disk.remove(time_index_path(log_path))
