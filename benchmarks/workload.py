"""What both sides of a storage benchmark do: the same bytes, through a log or bare."""

import ctypes
import mmap
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

from lograft.contract.batch import HEADER_SIZE, Batch
from lograft.contract.records import encode_batch
from lograft.storage import PartitionLog, PendingAppend

MIB = 1 << 20
LARGE_BATCH_BYTES = 1 << 20
LARGE_BATCH_RECORDS = 1024
SMALL_BATCH_BYTES = 16 << 10
SMALL_BATCH_RECORDS = 16
_libc = ctypes.CDLL(None, use_errno=True)
# How many appends wait for the disk at a time.
LARGE_IN_FLIGHT = 4
SMALL_IN_FLIGHT = 64


def make_batch(size_bytes: int, records: int) -> Batch:
    """A batch of exactly ``size_bytes`` on disk, of incompressible values of equal size (but the last)."""
    each, rest = divmod(size_bytes - HEADER_SIZE, records)
    # Tag and length take three bytes for values of 128 bytes to 16 kB.
    values = [os.urandom(each - 3) for _ in range(records - 1)] + [os.urandom(each - 3 + rest)]
    batch = encode_batch(values, timestamps_ms=time.time_ns() // 1_000_000)
    assert batch.header.size_bytes == size_bytes
    return batch


class Pool:
    """Ready-made batches of one size, handed out in turn: making them is not what is measured."""

    def __init__(self, size_bytes: int, records: int, count: int) -> None:
        self.size_bytes = size_bytes
        self.records = records
        batches = [make_batch(size_bytes, records) for _ in range(count)]
        self._batches = cycle(batches)
        self._buffers = cycle([(batch.frame()[:HEADER_SIZE], batch.records) for batch in batches])

    @classmethod
    def large(cls, count: int = 16) -> "Pool":
        """Batches of 1 MB: 1,024 records of about 1 kB."""
        return cls(LARGE_BATCH_BYTES, LARGE_BATCH_RECORDS, count)

    @classmethod
    def small(cls, count: int = 256) -> "Pool":
        """Batches of 16 kB: 16 records of about 1 kB."""
        return cls(SMALL_BATCH_BYTES, SMALL_BATCH_RECORDS, count)

    def take(self, size_bytes: int) -> Iterator[Batch]:
        """So many bytes' worth of batches."""
        return islice(self._batches, size_bytes // self.size_bytes)

    def take_buffers(self, size_bytes: int) -> Iterator[Sequence[bytes]]:
        """The same as buffers of one bare write each."""
        return islice(self._buffers, size_bytes // self.size_bytes)


def append_windowed(log: PartitionLog, batches: Iterable[Batch], in_flight: int) -> None:
    """Append with up to ``in_flight`` batches waiting for the disk; returns when all are durable."""
    waiting: deque[PendingAppend] = deque()
    for batch in batches:
        if len(waiting) == in_flight:
            waiting.popleft().wait()
        waiting.append(log.submit(batch))
    while waiting:
        waiting.popleft().wait()


class BareFile:
    """The other side of the appends: one write and one sync after the other, at the end of a growing file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def append(self, writes: Iterable[Sequence[bytes]]) -> None:
        """``writev`` and ``fdatasync`` for each."""
        for buffers in writes:
            written = os.writev(self._file, buffers)
            assert written == sum(map(len, buffers))
            os.fdatasync(self._file)

    def evict(self) -> None:
        """Give the pages back: the next slice writes into them again."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def segment_files(folder: Path) -> list[Path]:
    """The segments of a partition, oldest first."""
    return sorted(folder.glob("*.log"))


def evict(paths: Iterable[Path], *, sync: bool = True) -> None:
    """Drop files from the page cache. Dirty pages would stay: files that may have any are synced first."""
    for path in paths:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if sync:
                os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def cached_share(paths: Iterable[Path]) -> float:
    """Which share of the files' pages is in the page cache.

    By ``mincore``: a probing read, even one that must not wait, would start reading ahead.
    """
    cached = pages = 0
    for path in paths:
        size = path.stat().st_size
        if size == 0:
            continue
        # A private writable mapping, since ctypes takes the address of nothing else. Nothing is written.
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
            window = (ctypes.c_char * size).from_buffer(mapped)
            states = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            if _libc.mincore(ctypes.byref(window), ctypes.c_size_t(size), states) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
            del window  # or the mapping could not be closed
            pages += len(states)
            cached += sum(state & 1 for state in states)
    return cached / pages if pages else 0.0


def warm(paths: Iterable[Path]) -> None:
    """Read files once, so that the page cache holds what it can of them."""
    buffer = bytearray(MIB)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
