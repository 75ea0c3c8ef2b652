"""One partition directory, for `lograft.storage.inspect`: its small files, its segments, and whether they agree."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from lograft.contract.batch import BatchHeader
from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted, UnsupportedVersion
from lograft.contract.small_files import Kind, read_small_file
from lograft.storage.config import MAX_SEGMENT_BYTES
from lograft.storage.core.epoch_history import EpochHistory
from lograft.storage.inspect_files import damage_of, inspect_meta, inspect_other_files
from lograft.storage.inspect_segment import (
    Damage,
    Finding,
    LogOrder,
    Remark,
    SegmentInspection,
    TornTail,
    Trust,
)
from lograft.storage.segment import base_offset_of, segment_path
from lograft.storage.small_files import CHECKPOINT, epochs_from_proto
from lograft.storage.swap import find_swaps
from lograft.v1 import storage_pb2


@dataclass(frozen=True, slots=True)
class PartitionChecked:
    """What was looked at in one partition. Ends are exclusive."""

    path: Path
    segments: int
    batches: int
    records: int
    size_bytes: int
    start_offset: int
    end_offset: int


class PartitionInspection:
    """One look at one partition directory. `run` does it; the methods are its steps."""

    def __init__(self, directory: Path, disk: Disk, on_progress: Callable[[int], None]) -> None:
        self.directory = directory
        self.disk = disk
        self._on_progress = on_progress
        self._checkpoint_path = directory / CHECKPOINT
        self._checkpoint = storage_pb2.PartitionCheckpoint()
        self._epochs = EpochHistory()
        self._epochs_disagree = False
        self._listed: dict[Path, int] = {}  # the segments when we began, and their inodes
        self._passes: list[SegmentInspection] = []

    def run(self) -> Iterator[Finding | PartitionChecked]:
        """Everything that is wrong, then the totals."""
        # The checkpoint before the list: a log in use grows, so what the older checkpoint vouches for is there.
        yield from self._read_checkpoint()
        self._listed = {
            path: path.stat().st_ino
            for path in sorted(self.directory.glob("*.log"))
            if base_offset_of(path.name) is not None
        }
        yield from inspect_meta(self.directory, has_segments=bool(self._listed))
        yield from inspect_other_files(self.directory, list(self._listed))
        segments = yield from self._segments_that_count()
        yield from self._check_nothing_is_missing([base for base, _ in segments])
        order = LogOrder(segments[0][0] if segments else self._checkpoint.log_start_offset)
        for finding in self._inspect_segments(segments, order):
            if isinstance(finding, Damage | TornTail) and self._has_changed(finding):
                yield Remark(self.directory, 0, "the log changed while it was read (is it in use?): check it again")
                break
            yield finding
        else:
            yield from self._check_flushed_end(order.next_offset)
        first = segments[0][0] if segments else 0
        yield PartitionChecked(
            path=self.directory,
            segments=len(self._passes),
            batches=sum(one.batches for one in self._passes),
            records=sum(one.records for one in self._passes),
            size_bytes=sum(one.size_bytes for one in self._passes),
            start_offset=min(max(self._checkpoint.log_start_offset, first), order.next_offset),
            end_offset=order.next_offset,
        )

    # -- The checkpoint ------------------------------------------------------------------------------------------

    @property
    def _has_checkpoint(self) -> bool:
        return self._checkpoint.close_state != storage_pb2.CLOSE_STATE_UNSPECIFIED

    def _read_checkpoint(self) -> Iterator[Finding]:
        path = self._checkpoint_path
        try:
            stored = read_small_file(path, Kind.CHECKPOINT, storage_pb2.PartitionCheckpoint)
        except (StorageCorrupted, UnsupportedVersion) as error:
            # Not a cache: the log start, the high watermark and how far the disk was synced stand only here.
            found = damage_of(path, error)
            yield Damage(path, found.position, f"{found.problem}; opening will scan the whole log instead")
            return
        if stored is None:
            if any(self.directory.glob("*.log")):
                yield Remark(path, 0, "the file is missing: opening will scan the whole log")
            return
        self._checkpoint = stored
        self._epochs = epochs_from_proto(list(stored.epochs))
        start, committed, end = stored.log_start_offset, stored.high_watermark, stored.flushed_end_offset
        if not start <= committed <= end:
            yield Damage(path, 0, f"log start {start}, high watermark {committed} and flushed end {end} do not ascend")

    def _check_nothing_is_missing(self, bases: list[int]) -> Iterator[Finding]:
        checkpoint = self._checkpoint
        if not self._has_checkpoint:
            return
        wanted, start = checkpoint.flushed_segment_base, checkpoint.log_start_offset
        all_gone = not bases and checkpoint.flushed_end_offset > start
        if all_gone or (checkpoint.flushed_position and wanted not in bases):
            yield Damage(segment_path(self.directory, wanted), 0, "the segment is missing")
        if bases and bases[0] > start:
            problem = f"offsets {start} to {bases[0]} are missing before it"
            yield Damage(segment_path(self.directory, bases[0]), 0, problem)

    def _check_flushed_end(self, end_offset: int) -> Iterator[Finding]:
        """The checkpointed end is a place (segment and position) and an offset: both must be the same."""
        checkpoint = self._checkpoint
        if not self._has_checkpoint or not self._passes or any(one.is_damaged for one in self._passes):
            return
        wanted = checkpoint.flushed_end_offset
        if not checkpoint.flushed_position:
            # The segment that was to begin there need not exist yet, but all before it must, down to the log start.
            if end_offset < wanted and wanted > checkpoint.log_start_offset:
                problem = f"says that offsets up to {wanted} were synced, but the log ends at {end_offset}"
                yield Damage(self._checkpoint_path, 0, problem)
            return
        flushed = next((one for one in self._passes if one.base_offset == checkpoint.flushed_segment_base), None)
        if flushed is None or flushed.size_bytes < checkpoint.flushed_position:
            return  # said before
        found = flushed.offset_at_trusted_end
        if found != wanted:
            place = f"position {checkpoint.flushed_position} of {flushed.path.name}"
            said = "no batch ends there" if found is None else f"the log says {found}"
            yield Damage(self._checkpoint_path, 0, f"says offset {wanted} is at {place}, {said}")
        elif checkpoint.close_state == storage_pb2.CLOSE_STATE_CLEAN and end_offset > wanted:
            yield Remark(flushed.path, checkpoint.flushed_position, "the log goes on behind the end it was closed at")

    def _compare_epoch(self, header: BatchHeader) -> Iterator[Finding]:
        """Followers find out by the checkpointed epochs where their logs part: they must be those of the batches."""
        checkpoint, offset = self._checkpoint, header.base_offset
        if self._epochs_disagree or not checkpoint.log_start_offset <= offset < checkpoint.flushed_end_offset:
            return
        epoch = self._epochs.epoch_at(offset)
        if epoch != header.leader_epoch:
            self._epochs_disagree = True
            problem = f"says leader epoch {epoch} for offset {offset}, the log says {header.leader_epoch}"
            yield Damage(self._checkpoint_path, 0, problem)

    # -- The segments --------------------------------------------------------------------------------------------

    def _segments_that_count(self) -> Generator[Finding, None, list[tuple[int, Path]]]:
        """The segments as they will be once an opening has finished what a crash interrupted."""
        segments = {base_offset_of(path.name) or 0: path for path in self._listed}
        for swap in find_swaps(self.directory):
            try:
                swap.check(self.disk)
            except StorageCorrupted as error:
                yield Damage(swap.path, error.position, error.problem)
                continue
            kept = {base: path for base, path in segments.items() if not swap.replaces(base)}
            segments = kept | {swap.base_offset: swap.path}
        bases = sorted(segments)
        while len(bases) > 1 and bases[1] <= self._checkpoint.log_start_offset:
            yield Remark(segments[bases.pop(0)], 0, "lies below the log start: removed on open")
        return [(base, segments[base]) for base in bases]

    def _inspect_segments(self, segments: list[tuple[int, Path]], order: LogOrder) -> Iterator[Finding]:
        flushed_base = segments[-1][0] if segments else 0
        if self._has_checkpoint:
            flushed_base = self._checkpoint.flushed_segment_base
        previous: SegmentInspection | None = None
        for base, path in segments:
            is_cut = previous is not None and previous.is_cut
            if previous is not None and order.next_offset != base and not is_cut:
                if not previous.is_closed:
                    is_cut = previous.is_cut = True
                elif not previous.is_damaged:
                    problem = f"the segment ends at offset {order.next_offset}, the next one begins at {base}"
                    yield Damage(previous.path, previous.size_bytes, problem)
            if is_cut:
                yield TornTail(path, 0, path.stat().st_size, "nothing sound leads up to it")
                continue
            order.next_offset = base
            trust = self._trust(base, flushed_base, path)
            previous = SegmentInspection(self.disk, path, base, order, trust, self._on_progress)
            self._passes.append(previous)
            try:
                yield from previous.run(self._compare_epoch)
            except FileNotFoundError:
                yield Damage(path, 0, "the file is missing")
            if not trust.is_closed and previous.size_bytes < trust.trusted_bytes:
                problem = f"the file is shorter than the {trust.trusted_bytes} bytes once synced"
                yield Damage(path, previous.size_bytes, problem)

    def _trust(self, base: int, flushed_base: int, path: Path) -> Trust:
        has_index = path.suffix == ".log"  # a compacted segment that is not in place yet has none
        if base < flushed_base:
            return Trust(trusted_bytes=MAX_SEGMENT_BYTES, is_closed=True, has_index=has_index)
        checkpoint = self._checkpoint
        failed = checkpoint.close_state == storage_pb2.CLOSE_STATE_SYNC_FAILED
        return Trust(
            trusted_bytes=checkpoint.flushed_position if base == flushed_base else 0,
            end_offset=checkpoint.trusted_end_offset if failed else None,
            is_closed=False,
            has_index=has_index,
        )

    def _has_changed(self, finding: Damage | TornTail) -> bool:
        """Whether the log's owner has deleted, compacted, truncated or written just what we were reading."""
        try:
            if any(path.stat().st_ino != inode for path, inode in self._listed.items()):
                return True
            if isinstance(finding, TornTail) and finding.path.stat().st_size != finding.position + finding.cut_bytes:
                return True
            stored = read_small_file(self._checkpoint_path, Kind.CHECKPOINT, storage_pb2.PartitionCheckpoint)
        except FileNotFoundError:
            return True
        except (StorageCorrupted, UnsupportedVersion):
            return False
        return stored is not None and stored.flushed_end_offset < self._checkpoint.flushed_end_offset
