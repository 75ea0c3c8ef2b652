"""The moment a compacted segment takes the place of others.

Compaction writes ``<base>.log.cleaned-<run>``. Renaming it to ``<base>.log.swap-<end>`` decides that it counts; then
the segments it covers are removed and it gets its final name. A crash before the first rename leaves the old segments,
one after it leaves something that the next opening completes.
"""

import re
from pathlib import Path
from typing import NamedTuple

from lograft.contract.disk import Disk
from lograft.contract.errors import CorruptBatch, StorageCorrupted
from lograft.storage.index import offset_index_path, remove_index, time_index_path
from lograft.storage.open_files import opened_for_reading
from lograft.storage.segment import base_offset_of, scan_batches, segment_path
from lograft.storage.small_files import producers_path

_SWAP_NAME = re.compile(r"(?P<segment>\d{20}\.log)\.swap-(?P<end>\d{20})")
CLEANED_NAME = re.compile(r"\d{20}\.log\.cleaned-.*")


class SwapFile(NamedTuple):
    """A compacted segment that counts, under its passing name."""

    path: Path
    base_offset: int
    # Where the last of the segments that it replaces ends.
    end_offset: int

    @classmethod
    def of(cls, log_path: Path, base_offset: int, end_offset: int) -> "SwapFile":
        """The swap file for the segments from ``log_path`` on, up to ``end_offset``."""
        return cls(log_path.with_name(f"{log_path.name}.swap-{end_offset:020d}"), base_offset, end_offset)

    def check(self, disk: Disk) -> None:
        """Raise `StorageCorrupted` unless the file is sound up to exactly its end: it was synced before its name."""
        next_offset, size = self.base_offset, 0
        try:
            with opened_for_reading(disk, self.path) as (file, size):
                for _, batch in scan_batches(disk, file, 0, size):
                    next_offset = batch.header.next_offset
        except CorruptBatch as error:
            raise StorageCorrupted(str(self.path), error.position, error.problem) from None
        if next_offset != self.end_offset:
            problem = f"it ends at offset {next_offset} instead of {self.end_offset}"
            raise StorageCorrupted(str(self.path), size, problem)

    def replaces(self, base_offset: int) -> bool:
        """Whether the segment that begins at ``base_offset`` is covered by this one."""
        return self.base_offset <= base_offset < self.end_offset


def find_swaps(directory: Path) -> list[SwapFile]:
    """The swap files in a partition's directory, by offset."""
    found = []
    for path in directory.iterdir():
        match = _SWAP_NAME.fullmatch(path.name)
        base = base_offset_of(match["segment"]) if match else None
        if match and base is not None:
            found.append(SwapFile(path, base, int(match["end"])))
    return sorted(found, key=lambda swap: swap.base_offset)


def complete_swap(directory: Path, disk: Disk, swap: SwapFile) -> None:
    """Put the compacted segment in the place of those it covers. May be repeated after a crash."""
    target = segment_path(directory, swap.base_offset)
    for path in sorted(directory.glob("*.log")):
        other = base_offset_of(path.name)
        if other is not None and other != swap.base_offset and swap.replaces(other):
            remove_segment_files(disk, path)
    remove_index(disk, target)
    disk.rename(swap.path, target)
    disk.sync_directory(directory)


def remove_segment_files(disk: Disk, path: Path) -> None:
    """Remove a segment and all that belongs to it."""
    for owned in (path, offset_index_path(path), time_index_path(path), producers_path(path)):
        disk.remove(owned)


def finish_interrupted_compaction(directory: Path, disk: Disk) -> None:
    """Complete or forget what a crash interrupted: ``.cleaned`` was not decided yet, ``.swap`` was."""
    for path in list(directory.iterdir()):
        if CLEANED_NAME.fullmatch(path.name):
            disk.remove(path)
    for swap in find_swaps(directory):
        swap.check(disk)
        complete_swap(directory, disk, swap)
