"""Opening a partition's directory: what is there, what can be trusted, and what a crash has left behind.

The checkpoint says up to where everything was synced. Three cases are told apart:

- Closed in good order: the log ends exactly there, and nothing is scanned.
- Bad bytes below that point: corruption. `StorageCorrupted` is raised and nothing is touched; the directory is for the
  caller to quarantine.
- Bytes above it: the tail of a crash. Sound batches are kept (and synced, since a kill leaves them in the page cache
  only); from the first bad one on the tail is cut, set aside beside the log, and reported.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from lograft.contract.batch import BatchHeader
from lograft.contract.directories import LOCK_FILE
from lograft.contract.disk import Disk, going_on_without_space
from lograft.contract.errors import CorruptBatch, StorageCorrupted
from lograft.contract.small_files import Kind, read_small_file
from lograft.storage.config import LogConfig
from lograft.storage.core.epoch_history import EpochHistory
from lograft.storage.core.producer_state import ProducerStates
from lograft.storage.index import (
    IndexBuilder,
    SegmentSummary,
    SparseIndex,
    read_index,
    write_index,
)
from lograft.storage.open_files import opened_for_reading
from lograft.storage.segment import Segment, base_offset_of, scan_batches, scan_headers, segment_path
from lograft.storage.small_files import CHECKPOINT, PARTITION_META, epochs_from_proto, producers_from_proto
from lograft.storage.swap import finish_interrupted_compaction, remove_segment_files
from lograft.v1 import storage_pb2

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Cut:
    """A torn tail that was taken off a segment."""

    path: str
    position: int
    cut_bytes: int
    problem: str
    # Where the bytes lie now; None if they were all zero.
    kept_as: str | None


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log has found and done."""

    was_clean: bool = True
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    rebuilt_indexes: list[str] = field(default_factory=list)
    # Files that are not ours: left as they are.
    unknown_files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def cut_bytes(self) -> int:
        """How much was cut off in all: not 0 means that unacknowledged batches, or damage, were at the end."""
        return sum(cut.cut_bytes for cut in self.cuts)

    def lines(self) -> list[str]:
        """The report for people."""
        said = [
            "closed in good order"
            if self.was_clean
            else f"not closed in good order: scanned {self.scanned_bytes} bytes"
        ]
        said += [
            f"cut {cut.cut_bytes} bytes from position {cut.position} of {cut.path} ({cut.problem})"
            + (f", kept as {cut.kept_as}" if cut.kept_as else "")
            for cut in self.cuts
        ]
        said += [f"made the index of {path} again" for path in self.rebuilt_indexes]
        said += [f"left {path} alone: not a file of ours" for path in self.unknown_files]
        return said + self.notes


@dataclass(slots=True)
class RecoveredLog:
    """What a partition's directory holds."""

    segments: list[Segment]
    epochs: EpochHistory
    producers: ProducerStates
    log_start_offset: int
    high_watermark: int
    compacted_end_offset: int
    checkpoint: storage_pb2.PartitionCheckpoint
    report: RecoveryReport


class Recovery:
    """One opening of one directory. `run` does it; the methods are its steps."""

    def __init__(self, directory: Path, config: LogConfig, disk: Disk) -> None:
        self.directory = directory
        self.config = config
        self.disk = disk
        self.report = RecoveryReport()
        self.segments: list[Segment] = []
        self.epochs = EpochHistory()
        self.producers = ProducerStates(config.remembered_batches)
        self._is_cut = False

    def run(self) -> RecoveredLog:
        """Find out what is there and bring it into order."""
        finish_interrupted_compaction(self.directory, self.disk)
        bases = self._list_segments()
        checkpoint = self._read_checkpoint()
        self.report.was_clean = checkpoint.close_state == storage_pb2.CLOSE_STATE_CLEAN or not bases
        bases = self._drop_below_log_start(bases, checkpoint)
        self._check_nothing_is_missing(bases, checkpoint)
        known = checkpoint.close_state != storage_pb2.CLOSE_STATE_UNSPECIFIED
        if known:
            self.epochs = epochs_from_proto(list(checkpoint.epochs))
            self.producers = producers_from_proto(list(checkpoint.producers), self.config.remembered_batches)
        # Without a checkpoint everything is scanned; but closed segments were synced before the next was begun.
        flushed_base = checkpoint.flushed_segment_base if known else bases[-1] if bases else 0
        following = [*bases[1:], None]
        if known and bases and bases[-1] < flushed_base and checkpoint.log_start_offset < flushed_base:
            # The segment begun at the checkpoint need not exist yet, but those before it must reach up to it.
            following[-1] = flushed_base
        for base, next_base in zip(bases, following, strict=False):
            if base < flushed_base:
                self._open_closed(base, next_base, note_batches=not known)
            elif not self._is_cut:
                self._open_tail(base, checkpoint, checkpoint.flushed_position if base == flushed_base else 0)
            else:
                self._set_aside(base)
        # A process killed between creating a segment and syncing its name has left that to us.
        self.disk.sync_directory(self.directory)
        return self._result(checkpoint)

    def _list_segments(self) -> list[int]:
        bases = []
        for path in sorted(self.directory.iterdir()):
            base = base_offset_of(path.name)
            if base is not None:
                bases.append(base)
            elif path.name.endswith(".tmp"):
                self.disk.remove(path)
            elif path.name not in (CHECKPOINT, PARTITION_META, LOCK_FILE) and not self._belongs_to_segment(path):
                self.report.unknown_files.append(str(path))
        return bases

    def _belongs_to_segment(self, path: Path) -> bool:
        stem, _, rest = path.name.partition(".")
        is_ours = rest in ("index", "timeindex", "producers") or rest.startswith("log.cut-")
        return is_ours and base_offset_of(f"{stem}.log") is not None

    def _read_checkpoint(self) -> storage_pb2.PartitionCheckpoint:
        path = self.directory / CHECKPOINT
        try:
            stored = read_small_file(path, Kind.CHECKPOINT, storage_pb2.PartitionCheckpoint)
        except StorageCorrupted as error:
            self.report.notes.append(f"{error}: scanning the whole log instead")
            stored = None
        return stored or storage_pb2.PartitionCheckpoint()

    def _drop_below_log_start(self, bases: list[int], checkpoint: storage_pb2.PartitionCheckpoint) -> list[int]:
        """Finish a deletion of old segments, or of all of them, that a crash interrupted."""
        start = checkpoint.log_start_offset
        begins_anew = (
            checkpoint.close_state != storage_pb2.CLOSE_STATE_UNSPECIFIED
            and checkpoint.flushed_position == 0
            and checkpoint.flushed_segment_base == checkpoint.flushed_end_offset == start
        )
        if begins_anew and start not in bases:
            kept: list[int] = []
        else:
            # The end of a segment is where the next one begins; that of the last is not known yet.
            ends = [*bases[1:], None]
            kept = [base for base, end in zip(bases, ends, strict=False) if end is None or end > start]
            kept = [base for base in kept if base >= start] if begins_anew else kept
        for base in bases:
            if base not in kept:
                remove_segment_files(self.disk, segment_path(self.directory, base))
        return kept

    def _check_nothing_is_missing(self, bases: list[int], checkpoint: storage_pb2.PartitionCheckpoint) -> None:
        if not checkpoint.close_state:
            return
        wanted = checkpoint.flushed_segment_base
        all_gone = not bases and checkpoint.flushed_end_offset > checkpoint.log_start_offset
        if all_gone or (checkpoint.flushed_position and wanted not in bases):
            raise StorageCorrupted(str(segment_path(self.directory, wanted)), 0, "the segment is missing")
        if bases and bases[0] > checkpoint.log_start_offset:
            missing = f"offsets {checkpoint.log_start_offset} to {bases[0]} are missing before it"
            raise StorageCorrupted(str(segment_path(self.directory, bases[0])), 0, missing)

    def _open_closed(self, base: int, following: int | None, *, note_batches: bool) -> None:
        """A segment wholly below the flushed point: taken on the word of its index, unless that does not fit."""
        path = segment_path(self.directory, base)
        size = path.stat().st_size
        stored = None if note_batches else read_index(path)
        summary = stored[0] if stored is not None else None
        fits = summary is not None and (summary.base_offset, summary.log_bytes) == (base, size)
        if summary is None or not fits or following not in (None, summary.next_offset):
            self.report.rebuilt_indexes.append(str(path))
            summary = self._scan_closed(path, base, size, note_batches=note_batches)
        if following is not None and summary.next_offset != following:
            problem = f"the segment ends at offset {summary.next_offset}, the next one begins at {following}"
            raise StorageCorrupted(str(path), size, problem)
        self.segments.append(Segment(self.disk, path, summary, None))

    def _scan_closed(self, path: Path, base: int, size: int, *, note_batches: bool) -> SegmentSummary:
        builder = IndexBuilder(self.config.index_interval_bytes)
        next_offset = base
        try:
            with opened_for_reading(self.disk, path) as (file, _):
                for position, header in self._scan(file, size, with_records=note_batches):
                    self._check_order(header, next_offset, position)
                    builder.note(header, base, position)
                    if note_batches:
                        self._note(header)
                    next_offset = header.next_offset
        except CorruptBatch as error:
            raise StorageCorrupted(str(path), error.position, error.problem) from None
        summary = builder.summary(base, next_offset, size)
        with going_on_without_space(path):  # it is made again at the first read
            write_index(self.disk, path, summary, builder.index)
        return summary

    def _scan(self, file: int, size: int, *, with_records: bool) -> Iterator[tuple[int, BatchHeader]]:
        if not with_records:
            return scan_headers(self.disk, file, 0, size)
        self.report.scanned_bytes += size
        return ((position, batch.header) for position, batch in scan_batches(self.disk, file, 0, size))

    def _open_tail(self, base: int, checkpoint: storage_pb2.PartitionCheckpoint, flushed_position: int) -> None:
        """A segment that reaches above the flushed point: believe what lies below, examine what lies above."""
        path = segment_path(self.directory, base)
        if self.segments and self.segments[-1].next_offset != base:
            self._set_aside(base)
            return
        size = path.stat().st_size
        if size < flushed_position:
            raise StorageCorrupted(
                str(path), size, f"the file is shorter than the {flushed_position} bytes once synced"
            )
        flushed_end = checkpoint.flushed_end_offset if flushed_position else base
        builder, next_offset = self._index_below(path, base, flushed_position, flushed_end)
        position = flushed_position
        if size > flushed_position:
            position, next_offset = self._scan_tail(path, base, builder, next_offset, flushed_position, checkpoint)
        summary = builder.summary(base, next_offset, position)
        self.segments.append(Segment(self.disk, path, summary, builder))

    def _index_below(self, path: Path, base: int, end: int, end_offset: int) -> tuple[IndexBuilder, int]:
        """The index of the part below ``end`` and the offset there. Bad headers there are corruption."""
        stored = read_index(path)
        if stored is not None and stored[0].base_offset == base and stored[0].log_bytes <= end:
            try:
                return self._index_from(path, stored, end, end_offset)
            except StorageCorrupted:
                pass  # the index may be to blame: the log alone decides
        if end:
            self.report.rebuilt_indexes.append(str(path))
        nothing = SegmentSummary(base, base, 0, 0, 0, 0), SparseIndex()
        return self._index_from(path, nothing, end, end_offset)

    def _index_from(
        self, path: Path, stored: tuple[SegmentSummary, SparseIndex], end: int, end_offset: int
    ) -> tuple[IndexBuilder, int]:
        summary, index = stored
        builder = IndexBuilder(self.config.index_interval_bytes)
        builder.resume(summary, index)
        next_offset = summary.next_offset
        try:
            with opened_for_reading(self.disk, path) as (file, _):
                for at, header in scan_headers(self.disk, file, summary.log_bytes, end):
                    self._check_order(header, next_offset, at)
                    builder.note(header, summary.base_offset, at)
                    next_offset = header.next_offset
        except CorruptBatch as error:
            raise StorageCorrupted(str(path), error.position, error.problem) from None
        if next_offset != end_offset:
            problem = f"offset {next_offset} instead of {end_offset} at the checkpointed position"
            raise StorageCorrupted(str(path), end, problem)
        return builder, next_offset

    def _scan_tail(
        self,
        path: Path,
        base: int,
        builder: IndexBuilder,
        next_offset: int,
        position: int,
        checkpoint: storage_pb2.PartitionCheckpoint,
    ) -> tuple[int, int]:
        """Keep the sound batches above ``position``, cut off the rest; where the log then ends."""
        self.report.was_clean = False
        begin = position
        end_of_trust = None
        if checkpoint.close_state == storage_pb2.CLOSE_STATE_SYNC_FAILED:
            end_of_trust = checkpoint.trusted_end_offset
        file = self.disk.open_file(path)
        try:
            # What a killed process wrote may be in the page cache only, and after a failed write-back the cache may
            # differ from the disk: sync, drop the cached pages, and look at what the disk really has.
            self.disk.sync_file(file)
            os.posix_fadvise(file, position, 0, os.POSIX_FADV_DONTNEED)
            size = os.fstat(file).st_size
            problem = None
            try:
                for at, batch in scan_batches(self.disk, file, position, size):
                    self._check_order(batch.header, next_offset, at)
                    if end_of_trust is not None and batch.header.base_offset >= end_of_trust:
                        problem = "written around a failed sync"
                        break
                    builder.note(batch.header, base, at)
                    self._note(batch.header)
                    position, next_offset = at + batch.header.size_bytes, batch.header.next_offset
            except CorruptBatch as error:
                problem = error.problem
            self.report.scanned_bytes += position - begin
            if problem is not None:
                self._cut(path, file, position, size, problem)
        finally:
            os.close(file)
        return position, next_offset

    def _check_order(self, header: BatchHeader, next_offset: int, position: int) -> None:
        if header.base_offset < next_offset:
            problem = f"offset {header.base_offset} goes back behind {next_offset}"
            raise CorruptBatch(problem, position=position)

    def _note(self, header: BatchHeader) -> None:
        self.epochs.note(header.leader_epoch, header.base_offset)
        self.producers.note(header)

    def _cut(self, path: Path, file: int, position: int, size: int, problem: str) -> None:
        kept = self._free_name(path, position)
        something = False
        try:
            with kept.open("wb") as copy:
                for at in range(position, size, _COPY_BYTES):
                    chunk = self.disk.read(file, min(_COPY_BYTES, size - at), at)
                    something = something or chunk.count(0) != len(chunk)
                    copy.write(chunk)
                copy.flush()
                os.fsync(copy.fileno())
        except OSError:
            self.disk.remove(kept)
            raise
        if not something:
            self.disk.remove(kept)
        self.disk.truncate(file, position)
        self.disk.sync_file(file)
        self._is_cut = True
        self.report.cuts.append(Cut(str(path), position, size - position, problem, str(kept) if something else None))

    def _free_name(self, path: Path, position: int) -> Path:
        """Where cut bytes go; what an earlier crash left there is kept too."""
        names = (f"{path.name}.cut-{position}" + (f"-{number}" if number else "") for number in count())
        return next(path.with_name(name) for name in names if not path.with_name(name).exists())

    def _set_aside(self, base: int) -> None:
        """A whole segment behind a cut or a gap."""
        path = segment_path(self.directory, base)
        kept = self._free_name(path, 0)
        size = path.stat().st_size
        self.disk.rename(path, kept)
        remove_segment_files(self.disk, path)
        self.disk.sync_directory(self.directory)
        self._is_cut = True
        self.report.was_clean = False
        self.report.cuts.append(Cut(str(path), 0, size, "nothing sound leads up to it", str(kept)))

    def _result(self, checkpoint: storage_pb2.PartitionCheckpoint) -> RecoveredLog:
        start = checkpoint.log_start_offset
        if self.segments and self.segments[-1].next_offset < start:
            # The log was to begin anew further up, and a crash came before the old segments were removed.
            for segment in reversed(self.segments):
                remove_segment_files(self.disk, segment.path)
            self.segments.clear()
            self.epochs, self.producers = EpochHistory(), ProducerStates(self.config.remembered_batches)
        if not self.segments:
            interval = self.config.index_interval_bytes
            start = max(start, checkpoint.flushed_end_offset)
            self.segments.append(Segment.create(self.disk, self.directory, start, interval))
        start = max(start, self.segments[0].base_offset)
        end = self.segments[-1].next_offset
        self.epochs.truncate_end(end + 1)
        self.producers.settle_to(end)
        return RecoveredLog(
            segments=self.segments,
            epochs=self.epochs,
            producers=self.producers,
            log_start_offset=start,
            high_watermark=max(min(checkpoint.high_watermark, end), start),
            compacted_end_offset=min(checkpoint.compacted_end_offset, end),
            checkpoint=checkpoint,
            report=self.report,
        )
