"""One segment of a log: a file of whole batches, its index, and what is known of it.

The owner of the log (one thread) notes appends here before they are written; the writer thread writes the bytes
(`SegmentFile`); any thread may read what is flushed.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from lograft.contract.batch import HEADER_SIZE, Batch, BatchHeader, check_records_crc, read_header
from lograft.contract.disk import Disk
from lograft.contract.errors import CorruptBatch
from lograft.storage.core.retention import SegmentFacts
from lograft.storage.index import IndexBuilder, SegmentSummary, SparseIndex, read_index
from lograft.storage.open_files import OPEN_FILES, OpenFile, opened_for_reading

_NAME = re.compile(r"(\d{20})\.log")
# Scanning headers reads this much at once: many small batches, or one header of a large one.
_SCAN_BYTES = 16 << 10
_REBUILT_INTERVAL_BYTES = 16 << 10


def segment_path(directory: Path, base_offset: int) -> Path:
    """Where the segment that begins at ``base_offset`` lies."""
    return directory / f"{base_offset:020d}.log"


def base_offset_of(name: str) -> int | None:
    """The offset a segment's file name stands for; None if it is not a segment's name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) < 1 << 63 else None


class SegmentFile:
    """The writing side of a segment. Belongs to the writer thread, which alone opens, writes and closes it."""

    __slots__ = ("descriptor", "flushed_bytes", "is_new", "path", "predecessor", "unsynced")

    def __init__(self, path: Path, *, flushed_bytes: int, is_new: bool) -> None:
        self.path = path
        self.descriptor = -1
        # Everything below may be read.
        self.flushed_bytes = flushed_bytes
        # Until its directory was synced, the file may vanish in a crash whatever was synced into it.
        self.is_new = is_new
        self.unsynced = False
        # The file of the segment before, until it is synced: what is durable here counts only if that is too.
        self.predecessor: SegmentFile | None = None

    def with_predecessors(self) -> "list[SegmentFile]":
        """The file and those before it that may not be synced yet."""
        files = [self]
        while (before := files[-1].predecessor) is not None:
            if not (before.unsynced or before.is_new):
                files[-1].predecessor = None
                break
            files.append(before)
        return files

    def open(self, disk: Disk) -> int:
        """The descriptor, opened (and the file created) at the first call."""
        if self.descriptor < 0:
            self.descriptor = disk.open_file(self.path, create=self.is_new)
        return self.descriptor

    def close(self) -> None:
        """Close the descriptor, if it is open."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Segment:
    """A segment as the owner of the log sees it: ``size_bytes`` and ``next_offset`` include what is still queued."""

    __slots__ = (
        "_builder",
        "_hint",
        "_index_from_disk",
        "_pinned",
        "base_offset",
        "disk",
        "file",
        "next_offset",
        "path",
        "size_bytes",
        "summary",
    )

    def __init__(
        self,
        disk: Disk,
        path: Path,
        summary: SegmentSummary,
        builder: IndexBuilder | None,
        *,
        is_new: bool = False,
    ) -> None:
        self.disk = disk
        self.path = path
        self.base_offset = summary.base_offset
        self.next_offset = summary.next_offset
        self.size_bytes = summary.log_bytes
        self.summary = summary
        # None: the index is on disk, not needed so far.
        self._builder = builder
        self.file = SegmentFile(path, flushed_bytes=summary.log_bytes, is_new=is_new)
        self._index_from_disk = False
        self._pinned: OpenFile | None = None
        # Where the last read ended: a sequential reader goes on there without asking the index.
        self._hint = (-1, 0)

    @classmethod
    def create(cls, disk: Disk, directory: Path, base_offset: int, index_interval_bytes: int) -> "Segment":
        """A segment whose file the writer will create."""
        summary = SegmentSummary(base_offset, base_offset, 0, 0, 0, 0)
        path = segment_path(directory, base_offset)
        return cls(disk, path, summary, IndexBuilder(index_interval_bytes), is_new=True)

    @property
    def builder(self) -> IndexBuilder:
        """The index and times, loaded from disk (or made again from the log) at the first use."""
        builder = self._builder
        if builder is None:
            builder = self._builder = self._load_index()
        return builder

    def _load_index(self) -> IndexBuilder:
        builder = IndexBuilder(_REBUILT_INTERVAL_BYTES)
        stored = read_index(self.path)
        if stored is not None and stored[0] == self.summary:
            builder.resume(*stored)
            self._index_from_disk = True
            return builder
        # Kept in memory only: readers do not write. The next opening stores it.
        return index_by_scan(self.disk, self.path, self.base_offset, _REBUILT_INTERVAL_BYTES)[0]

    def distrust_index(self) -> bool:
        """Make an index that came from disk again from the log; False if it did not come from disk.

        For when what was found through it is no batch: the index may be to blame. Raises `CorruptBatch` if it was not.
        """
        if not self._index_from_disk:
            return False
        self._builder, _, _ = index_by_scan(self.disk, self.path, self.base_offset, _REBUILT_INTERVAL_BYTES)
        self._index_from_disk = False
        self._hint = (-1, 0)
        return True

    def drop_index(self) -> None:
        """Let the index of a closed segment be read from disk when it is needed again."""
        self._builder = None

    def evicted(self) -> None:
        """Nobody has read the file for long: the index of a closed segment need not stay either."""
        if self._index_from_disk and self._pinned is None:
            self.drop_index()

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp of its records, or more."""
        builder = self._builder
        return builder.max_timestamp_ms if builder else self.summary.max_timestamp_ms

    def facts(self) -> SegmentFacts:
        """What retention needs to know."""
        builder = self._builder
        newest = builder.newest_append_ms if builder else self.summary.newest_append_ms
        return SegmentFacts(self.base_offset, self.next_offset, self.size_bytes, newest)

    def note(self, header: BatchHeader) -> int:
        """Take in a batch that will be written at the end; returns its position."""
        position = self.size_bytes
        self.builder.note(header, self.base_offset, position)
        self.size_bytes = position + header.size_bytes
        self.next_offset = header.next_offset
        return position

    def current_summary(self) -> SegmentSummary:
        """The summary as of now, to be stored with the index."""
        builder = self.builder
        return builder.summary(self.base_offset, self.next_offset, self.size_bytes)

    def roll_back(self, end_offset: int, end_position: int) -> None:
        """Forget what was noted at or after ``end_position``, and never written."""
        self.builder.truncate(end_position)
        self.size_bytes = end_position
        self.next_offset = end_offset

    def cut_point(self, offset: int) -> tuple[int, int]:
        """Position of the batch that holds ``offset``, or of the next one, and where the offsets before it end."""
        index, end_offset = self.builder.index, self.base_offset
        # From the row before: the batch at the row itself may be the one, and the end of what precedes it is wanted.
        start = index.position_before(index.position_for_offset(offset - self.base_offset))
        for position, header in self.headers(start):
            if header.last_offset >= offset:
                return position, end_offset
            end_offset = header.next_offset
        return self.file.flushed_bytes, end_offset

    def cut_at(self, end_offset: int, end_position: int) -> "Segment":
        """The segment as it will be when it ends at ``end_position``.

        Another object, so that a reader of the old one finds out when it trips over the cut.
        """
        builder = self.builder.copy()
        builder.truncate(end_position)
        summary = self.current_summary()._replace(next_offset=end_offset, log_bytes=end_position)
        return Segment(self.disk, self.path, summary, builder, is_new=self.file.is_new and self.file.descriptor < 0)

    def seal(self) -> tuple[SegmentSummary, SparseIndex]:
        """No more batches come: the summary and the index, to be stored."""
        self.summary = self.current_summary()
        return self.summary, self.builder.index

    def close(self) -> None:
        """Let go of the file, for writing and for reading."""
        self.file.close()
        OPEN_FILES.forget(self)

    def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes of the file."""
        opened = self._opened()  # held until the read is done, or the number might stand for another file by then
        return self.disk.read(opened.descriptor, size, position)

    def pin(self) -> None:
        """Keep file and index for readers that still use this object when another file takes its place."""
        self._pinned = self._opened()
        self._builder = self.builder

    def _opened(self) -> OpenFile:
        return self._pinned or OPEN_FILES.get(self, self.disk, self.path)

    def read_batches(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Whole, checked batches from the one that holds ``offset`` on, up to ``max_bytes`` but at least one.

        Batches that reach beyond ``end_offset`` are left out. Raises `CorruptBatch` with file and position.
        """
        flushed_bytes = self.file.flushed_bytes
        start = self.position_of(offset)
        if start >= flushed_bytes:
            return b""
        size = min(max(max_bytes, HEADER_SIZE), flushed_bytes - start)
        data = self.read(size, start)
        end, next_offset = 0, offset
        try:
            first = read_header(data)
            if first.size_bytes > len(data):
                data = self.read(first.size_bytes, start)
            while len(data) - end >= HEADER_SIZE:
                header = read_header(data, end)
                self._check_belongs(header, end)
                batch_end = end + header.size_bytes
                if header.next_offset > end_offset or (batch_end > len(data) and end > 0):
                    break
                check_records_crc(header, data[end + HEADER_SIZE : batch_end], end)
                end, next_offset = batch_end, header.next_offset
        except CorruptBatch as error:
            raise CorruptBatch(error.problem, str(self.path), start + error.position) from None
        self._hint = (next_offset, start + end)
        return data if end == len(data) else data[:end]

    def position_of(self, offset: int) -> int:
        """Position of the batch that holds ``offset``, or of the next one; the flushed end if there is none."""
        hint_offset, hint_position = self._hint
        if hint_offset == offset:
            return hint_position
        for position, header in self.headers(self.builder.index.position_for_offset(offset - self.base_offset)):
            if header.last_offset >= offset:
                return position
        return self.file.flushed_bytes

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the flushed batches from ``position`` on, without their records."""
        opened = self._opened()
        try:
            for found in scan_headers(self.disk, opened.descriptor, position, self.file.flushed_bytes):
                self._check_belongs(found[1], found[0])
                yield found
        except CorruptBatch as error:
            raise CorruptBatch(error.problem, str(self.path), error.position) from None

    def batch_at(self, position: int, header: BatchHeader) -> Batch:
        """The batch whose header was found at ``position``, with its records, checked."""
        records = self.read(header.records_bytes, position + HEADER_SIZE)
        try:
            check_records_crc(header, records, position)
        except CorruptBatch as error:
            raise CorruptBatch(error.problem, str(self.path), position) from None
        return Batch(header, records)

    def _check_belongs(self, header: BatchHeader, position: int) -> None:
        """Sound batches in the wrong file are damage too."""
        if header.base_offset < self.base_offset or header.next_offset > self.next_offset:
            problem = f"offsets {header.base_offset} to {header.next_offset} do not belong into this segment"
            raise CorruptBatch(problem, position=position)


def scan_headers(disk: Disk, file: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches in a range of a file. Raises `CorruptBatch` at the first that is none."""
    chunk_position, chunk = position, b""
    while position < end:
        at = position - chunk_position
        if len(chunk) - at < HEADER_SIZE:
            chunk_position, at = position, 0
            chunk = disk.read(file, min(_SCAN_BYTES, end - position), position)
        try:
            header = read_header(chunk, at)
        except CorruptBatch as error:
            raise CorruptBatch(error.problem, position=position) from None
        if position + header.size_bytes > end:
            raise CorruptBatch("the file ends within the batch", position=position)
        yield position, header
        position += header.size_bytes


def scan_batches(disk: Disk, file: int, position: int, end: int) -> Iterator[tuple[int, Batch]]:
    """Like `scan_headers`, with the records, checked."""
    for at, header in scan_headers(disk, file, position, end):
        records = disk.read(file, header.records_bytes, at + HEADER_SIZE)
        check_records_crc(header, records, at)
        yield at, Batch(header, records)


def index_by_scan(disk: Disk, path: Path, base_offset: int, index_interval_bytes: int) -> tuple[IndexBuilder, int, int]:
    """Make the index of a whole segment from its headers: the builder, the next offset and the size.

    Raises `CorruptBatch` if the headers are not all sound and in order.
    """
    builder = IndexBuilder(index_interval_bytes)
    next_offset = base_offset
    with opened_for_reading(disk, path) as (file, size):
        for position, header in scan_headers(disk, file, 0, size):
            if header.base_offset < next_offset:
                raise CorruptBatch(f"offset {header.base_offset} goes back behind {next_offset}", str(path), position)
            builder.note(header, base_offset, position)
            next_offset = header.next_offset
    return builder, next_offset, size
