"""One pass over one segment, for `lograft.storage.inspect`: every batch, and whether the index tells the truth.

Reads only, and through the same scan that recovery uses, so that both judge alike. Holds one batch at a time.
"""

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from lograft.contract.batch import MAX_BATCH_BYTES, Batch, BatchHeader
from lograft.contract.disk import Disk
from lograft.contract.errors import CorruptBatch
from lograft.contract.records import decode_batch
from lograft.storage.index import (
    KIND_OFFSETS,
    KIND_TIMES,
    SegmentSummary,
    SparseIndex,
    decode_index,
    offset_index_path,
    time_index_path,
)
from lograft.storage.segment import scan_batches, scan_headers

REBUILT_ON_OPEN = "will be rebuilt on open"
# Recovery believes an index whose checksum and size fit: this one it would use.
REMOVE_IT = "opening would trust it: remove the file, and it will be rebuilt on open"
_PROGRESS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that were safe are not what they must be."""

    path: Path
    position: int
    problem: str


@dataclass(frozen=True, slots=True)
class StaleCache:
    """A file that can be made again from the log is missing or wrong."""

    path: Path
    position: int
    problem: str
    remedy: str = REBUILT_ON_OPEN


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of the log, above what the checkpoint vouches for, is not sound: recovery will cut it."""

    path: Path
    position: int
    cut_bytes: int
    problem: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Nothing is lost, but somebody should know."""

    path: Path
    position: int
    problem: str


Finding = Damage | StaleCache | TornTail | Remark
CheckBatch = Callable[[BatchHeader], Iterator[Finding]]


@dataclass(slots=True)
class LogOrder:
    """What the next batch of the log must not go back behind."""

    next_offset: int
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a segment must be sound, and what is known of it."""

    # Bad bytes below are damage, above they are a torn tail.
    trusted_bytes: int
    # With a failed sync: batches from here on are cut, however well they look.
    end_offset: int | None = None
    # A closed segment's index covers all of it; the active one's may lag behind, or not be there yet.
    is_closed: bool = True
    has_index: bool = True


class SegmentInspection:
    """One segment. `run` yields what is wrong; the counters are complete when it has ended."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        base_offset: int,
        order: LogOrder,
        trust: Trust,
        on_progress: Callable[[int], None],
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.is_closed = trust.is_closed
        self.batches = self.records = self.size_bytes = 0
        self.is_cut = self.is_damaged = False
        # The offset after the batch that ends exactly where trust ends; None if no batch ends there.
        self.offset_at_trusted_end: int | None = None
        self._disk = disk
        self._order = order
        self._trust = trust
        self._on_progress = on_progress
        self._index = IndexInspection(path, base_offset)

    def run(self, check_batch: CheckBatch) -> Iterator[Finding]:
        """Look at every batch. ``check_batch`` sees each sound header, in order."""
        file = self._disk.open_for_reading(self.path)
        try:
            self.size_bytes = os.fstat(file).st_size
            if self._trust.has_index and self.size_bytes:
                yield from self._index.load(self.size_bytes, self._trust)
            position: int | None = 0
            while position is not None:
                position = yield from self._scan(file, position, check_batch)
            if not self.is_cut and not self.is_damaged:
                yield from self._index.finish()
        finally:
            os.close(file)

    def _scan(self, file: int, position: int, check_batch: CheckBatch) -> Generator[Finding, None, int | None]:
        """Go from ``position`` to the next bad batch; where to go on behind it, None if nowhere."""
        reported = position
        following = None
        try:
            for at, batch in scan_batches(self._disk, file, position, self.size_bytes):
                if (yield from self._take(at, batch, check_batch)):
                    break
                position = at + batch.header.size_bytes
                if position - reported >= _PROGRESS_BYTES:
                    self._on_progress(position - reported)
                    reported = position
        except CorruptBatch as error:
            following = self._next_position(file, error.position)
            behind = self.size_bytes - error.position
            consequence = "" if following else f"; nothing in the {behind} bytes from there on could be read"
            finding = self._bad(error.position, error.problem, consequence)
            yield finding
            if isinstance(finding, TornTail):
                following = None
        self._on_progress((following or self.size_bytes) - reported)
        return following

    def _take(self, at: int, batch: Batch, check_batch: CheckBatch) -> Generator[Finding, None, bool]:
        """Check one batch whose checksums are right; whether the log is to be cut before it."""
        header, order, trust = batch.header, self._order, self._trust
        if header.base_offset < order.next_offset:
            yield self._bad(at, f"offset {header.base_offset} goes back behind {order.next_offset}")
        elif trust.end_offset is not None and at >= trust.trusted_bytes and header.base_offset >= trust.end_offset:
            yield self._bad(at, "written around a failed sync")
        if self.is_cut:
            return True
        if header.leader_epoch < order.leader_epoch:
            yield Damage(self.path, at, f"leader epoch {header.leader_epoch} goes back behind {order.leader_epoch}")
        problem = _inner_problem(batch)
        if problem:
            yield Damage(self.path, at, f"the records do not open: {problem}")
        yield from check_batch(header)
        if not self.is_damaged:
            yield from self._index.note(at, header)
        order.next_offset, order.leader_epoch = header.next_offset, header.leader_epoch
        self.batches += 1
        self.records += header.record_count
        if at + header.size_bytes == trust.trusted_bytes:
            self.offset_at_trusted_end = header.next_offset
        return False

    def _bad(self, position: int, problem: str, consequence: str = "") -> Damage | TornTail:
        if position >= self._trust.trusted_bytes:
            self.is_cut = True
            return TornTail(self.path, position, self.size_bytes - position, problem)
        self.is_damaged = True
        return Damage(self.path, position, problem + consequence)

    def _next_position(self, file: int, position: int) -> int | None:
        """Where to go on behind a bad batch: behind its records, if its header is sound, else where the index says."""
        try:
            _, header = next(scan_headers(self._disk, file, position, self.size_bytes))
        except CorruptBatch:
            return self._index.next_position(position)
        return position + header.size_bytes


def _inner_problem(batch: Batch) -> str | None:
    """What is wrong inside a batch whose checksums are right."""
    try:
        # No limit of our own: the broker took the batch under the topic's, and the header's checksum is right.
        columns = decode_batch(batch, limit_bytes=MAX_BATCH_BYTES)
    except CorruptBatch as error:
        return error.problem
    newest_ms = max(columns.timestamps_ms, default=batch.header.max_timestamp_ms)
    if newest_ms != batch.header.max_timestamp_ms:
        return f"max_timestamp_ms is {batch.header.max_timestamp_ms}, the records say {newest_ms}"
    return None


class IndexInspection:
    """Both index files of one segment, compared with the batches as they go by. Says at most one thing of each."""

    def __init__(self, log_path: Path, base_offset: int) -> None:
        self._by_offset = offset_index_path(log_path)
        self._by_time = time_index_path(log_path)
        self._base_offset = base_offset
        self._summary: SegmentSummary | None = None
        self._index = SparseIndex()
        self._row = 0
        self._end = (0, base_offset)  # position and offset behind the last batch noted
        self._first_append_ms = self._newest_append_ms = self._max_timestamp_ms = 0
        self._is_done = False

    def load(self, log_bytes: int, trust: Trust) -> Iterator[Finding]:
        """Read both files; what recovery would refuse is said at once, and nothing more is compared."""
        found = []
        for path, kind in ((self._by_offset, KIND_OFFSETS), (self._by_time, KIND_TIMES)):
            try:
                decoded = decode_index(path.read_bytes(), kind)
            except FileNotFoundError:
                if trust.trusted_bytes:
                    yield StaleCache(path, 0, "the index is missing")
                continue
            if decoded is None:
                yield StaleCache(path, 0, "not a sound index (magic, length or checksum is wrong)")
            else:
                found.append(decoded)
        if len(found) < 2:
            return
        (summary, places), (times_summary, times) = found
        if summary != times_summary or len(places) != len(times):
            yield StaleCache(self._by_time, 0, f"does not fit {self._by_offset.name}")
        elif summary.base_offset != self._base_offset:
            yield StaleCache(self._by_offset, 0, f"the index of a segment that begins at {summary.base_offset}")
        elif summary.log_bytes > log_bytes or (trust.is_closed and summary.log_bytes != log_bytes):
            yield StaleCache(self._by_offset, 0, f"covers {summary.log_bytes} bytes of a segment of {log_bytes}")
        else:
            self._summary, self._index = summary, SparseIndex(places, times)

    def next_position(self, position: int) -> int | None:
        """The next batch behind ``position`` that the index knows of."""
        places = (place & 0xFFFFFFFF for place in self._index.places)
        return next((place for place in places if place > position), None)

    def note(self, at: int, header: BatchHeader) -> Iterator[Finding]:
        """Compare with the batch at position ``at``."""
        summary = self._summary
        if summary is None or self._is_done:
            return
        if at >= summary.log_bytes:
            yield from self.finish()
            return
        if self._row < len(self._index.places):
            place, time_before = self._index.places[self._row], self._index.times_before[self._row]
            if place & 0xFFFFFFFF <= at:
                if place != (header.base_offset - self._base_offset) << 32 | at:
                    offset, position = self._base_offset + (place >> 32), place & 0xFFFFFFFF
                    yield self._wrong(self._by_offset, f"row {self._row} says offset {offset} is at {position}")
                    return
                # A truncation leaves times as upper bounds: too late only makes a lookup longer, too early is wrong.
                if time_before < self._max_timestamp_ms:
                    yield self._wrong(self._by_time, f"row {self._row} says time {time_before} too early")
                    return
                self._row += 1
        self._end = at + header.size_bytes, header.next_offset
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp_ms)
        self._newest_append_ms = max(self._newest_append_ms, header.append_timestamp_ms)
        self._first_append_ms = self._first_append_ms or header.append_timestamp_ms

    def finish(self) -> Iterator[Finding]:
        """Compare the summary with all that was noted."""
        summary = self._summary
        if summary is None or self._is_done:
            return
        self._is_done = True
        if self._row < len(self._index.places):
            yield self._wrong(self._by_offset, f"row {self._row} points behind the last batch")
        elif self._end != (summary.log_bytes, summary.next_offset):
            yield self._wrong(self._by_offset, f"says offset {summary.next_offset} is at {summary.log_bytes}")
        elif summary.first_append_ms != self._first_append_ms or summary.newest_append_ms < self._newest_append_ms:
            yield self._wrong(self._by_offset, "the append times in its header are wrong")
        elif summary.max_timestamp_ms < self._max_timestamp_ms:
            yield self._wrong(self._by_offset, "the largest timestamp in its header is wrong")

    def _wrong(self, path: Path, problem: str) -> StaleCache:
        self._is_done = True
        return StaleCache(path, 0, f"{problem}, the log says otherwise", REMOVE_IT)
