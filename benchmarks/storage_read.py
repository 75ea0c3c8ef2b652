"""Reading a log from beginning to end while nothing of it is in memory."""

import os
from itertools import count

from benchmarks.harness import Bar, Row, alternate, rounded, seconds
from benchmarks.lab import MB, Lab
from benchmarks.workload import (
    LARGE_BATCH_BYTES,
    LARGE_BATCH_RECORDS,
    MIB,
    SMALL_BATCH_RECORDS,
    SMALL_IN_FLIGHT,
    Pool,
    append_windowed,
    cached_share,
    evict,
    segment_files,
)
from lograft.storage import LogConfig, PartitionLog

_READ_BYTES = MIB
# Does not divide 1 MB: each read ends within a batch, which is read again by the next, as in real life.
_RAGGED_BATCH_BYTES = 16_500


def cold_reads(lab: Lab) -> list[Row]:
    """``log.read`` of 1 MB after the other, against bare ``pread`` of the same bytes; both from evicted files."""
    title = "sequential read of cold segments"
    sizes = lab.sizes
    pools = {
        "1 MB batches": Pool(LARGE_BATCH_BYTES, LARGE_BATCH_RECORDS, 16),
        "16 kB batches": Pool(_RAGGED_BATCH_BYTES, SMALL_BATCH_RECORDS, 256),
    }
    detail: dict[str, float | int | str] = {}
    ratios = []
    still_cached = 0.0
    with lab.reporter.task(title, 2 * len(pools) * sizes.read_slices) as tick:
        for name, pool in pools.items():
            with lab.workplace("read") as folder:
                path = folder / "read-0"
                config = LogConfig(segment_bytes=max(sizes.read_log_bytes // 4, 8 * MIB))
                with PartitionLog.open(path, config) as log:
                    append_windowed(log, pool.take(sizes.read_log_bytes), SMALL_IN_FLIGHT)
                with PartitionLog.open(path, config) as log:
                    reader = _ColdReader(log, pool, sizes.read_slice_bytes)
                    sides = {"log": reader.through_log, "bare": reader.bare}
                    alternate(sides, 1)  # warm up: memory that was never used before costs more
                    samples = alternate(sides, sizes.read_slices, tick)
                    reader.close()
                still_cached = max(still_cached, reader.still_cached)
            # Costs are seconds per MB, since the slices differ by a few bytes.
            ratios.append(1 / samples.ratio("log", "bare"))
            detail[f"{name}, ratio"] = rounded(ratios[-1])
            for side in samples.costs:
                detail[f"{name}, {side} MB/s"] = rounded(1 / samples.median(side))
                detail[f"{name}, {side} spread"] = rounded(samples.spread(side))
    detail["slices"] = sizes.read_slices
    note = f"eviction left {still_cached:.0%} of the pages in memory" if still_cached > 0.05 else ""
    return [Row(f"{title}, 1 MB at a time, against bare pread (worst)", min(ratios), "x", Bar(">=", 0.7), detail, note)]


class _ColdReader:
    """Reads the same regions of a log in slices, one by one, in either way."""

    def __init__(self, log: PartitionLog, pool: Pool, slice_bytes: int) -> None:
        self._log = log
        self._pool = pool
        self._paths = segment_files(log.path)
        self._slice_bytes = slice_bytes
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in self._paths]
        self._turns = {"log": count(), "bare": count()}
        self.still_cached = 0.0

    def close(self) -> None:
        """Close the files of the bare side."""
        for file in self._files:
            os.close(file)

    def _begin(self, side: str) -> int:
        """Evict everything; with which segment this slice begins."""
        evict(self._paths)
        self.still_cached = max(self.still_cached, cached_share(self._paths))
        return next(self._turns[side]) % len(self._paths)

    def through_log(self) -> float:
        """One slice through the log: seconds per MB."""
        first = self._log.segments[self._begin("log")]
        read = 0

        def work() -> None:
            nonlocal read
            offset, end = first.base_offset, self._log.flushed_end_offset
            while read < self._slice_bytes and offset < end:
                data = self._log.read(offset, _READ_BYTES)
                read += len(data)
                offset += len(data) // self._pool.size_bytes * self._pool.records

        return seconds(work) / (read / MB)

    def bare(self) -> float:
        """One slice of the same bytes by ``pread``: seconds per MB."""
        number = self._begin("bare")
        read = 0

        def work() -> None:
            nonlocal read
            for file in self._files[number:]:
                position = 0
                while read < self._slice_bytes and (data := os.pread(file, _READ_BYTES, position)):
                    position += len(data)
                    read += len(data)

        return seconds(work) / (read / MB)
