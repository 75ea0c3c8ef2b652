"""What must not grow with the log: memory, the cost of an append or a read, and the time to open it."""

import os
import random
import resource
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.harness import Bar, Fact, Row, Samples, Tick, alternate, rounded, seconds, size_text
from benchmarks.lab import MB, Lab
from benchmarks.machine import available_memory_bytes
from benchmarks.storage_child import TURN_BYTES
from benchmarks.workload import (
    LARGE_BATCH_BYTES,
    LARGE_BATCH_RECORDS,
    LARGE_IN_FLIGHT,
    SMALL_BATCH_BYTES,
    SMALL_BATCH_RECORDS,
    SMALL_IN_FLIGHT,
    Pool,
    append_windowed,
    evict,
    segment_files,
    warm,
)
from lograft.storage import PartitionLog

# Offsets in one turn of 1 MB batches and in the turn of 16 kB batches that follows (see `storage_child.fill`).
_LARGE_TURN_RECORDS = TURN_BYTES // LARGE_BATCH_BYTES * LARGE_BATCH_RECORDS
_SMALL_TURN_RECORDS = TURN_BYTES // SMALL_BATCH_BYTES * SMALL_BATCH_RECORDS
_FLAT_SHARE = 0.10
_FLAT_MB = 5.0


def resident_memory(lab: Lab) -> list[Row]:
    """Memory of a process that does nothing but append."""
    fill = lab.fill()
    resident = fill.resident_mb
    half = len(resident) // 2
    early = median(resident[: half or 1])
    late = max(resident[half:])
    flat = late <= early + max(early * _FLAT_SHARE, _FLAT_MB)
    detail = {
        "first MB": rounded(resident[0]),
        "median of first half MB": rounded(early),
        "max of second half MB": rounded(late),
        "last MB": rounded(resident[-1]),
        "flat": "yes" if flat else "NO",
        "samples": len(resident),
        "fill MB/s": rounded(fill.size_bytes / MB / fill.seconds),
        "samples MB": [rounded(number) for number in resident],
    }
    measure = f"resident memory while appending {size_text(fill.size_bytes)}, flat"
    return [Row(measure, max(resident), "MB", Bar("<", 100), detail, lab.large_note, also=flat)]


class _Reads:
    """Random reads of one 16 kB batch each, through a log and bare."""

    def __init__(self, log: PartitionLog, offset_in: Callable[[random.Random], int], per_slice: int) -> None:
        self._log = log
        self._random = random.Random(1)  # noqa: S311 - every run reads the same places
        self._offset_in = offset_in
        self._per_slice = per_slice
        self._files = [(os.open(path, os.O_RDONLY), path.stat().st_size) for path in segment_files(log.path)]

    def through_log(self) -> float:
        """One slice: seconds."""
        offsets = [self._offset_in(self._random) for _ in range(self._per_slice)]

        def work() -> None:
            for offset in offsets:
                data = self._log.read(offset, SMALL_BATCH_BYTES)
                assert len(data) == SMALL_BATCH_BYTES

        return seconds(work)

    def bare(self) -> float:
        """As many bare reads of 16 kB: what the memory hierarchy alone charges for a larger file."""
        places = []
        for _ in range(self._per_slice):
            file, size = self._random.choice(self._files)
            places.append((file, self._random.randrange(max(size // SMALL_BATCH_BYTES, 1)) * SMALL_BATCH_BYTES))

        def work() -> None:
            for file, position in places:
                os.pread(file, SMALL_BATCH_BYTES, position)

        return seconds(work)

    def close(self) -> None:
        """Close the files of the bare side."""
        for file, _ in self._files:
            os.close(file)


def growth(lab: Lab) -> list[Row]:
    """Cost of an append and of a random read in the large log, against a log of 10 MB."""
    sizes = lab.sizes
    fill = lab.fill()
    title = f"cost at {size_text(fill.size_bytes)} against at {size_text(sizes.reference_bytes)}"
    steps = 4 * sizes.growth_read_slices + 2 * sizes.growth_append_slices
    with lab.workplace("growth") as folder, lab.reporter.task(title, steps) as tick:
        warm(segment_files(fill.path))
        with (
            PartitionLog.open(fill.path, sizes.config) as large,
            PartitionLog.open(folder / "read-0", sizes.config) as small,
        ):
            append_windowed(small, Pool.small().take(sizes.reference_bytes), SMALL_IN_FLIGHT)
            reads = _compare_reads(lab, large, small, tick)
            appends, cpu = _compare_appends(lab, large, folder, tick)
    ratios = {"append": appends.ratio("large", "small"), "read": reads.ratio("large", "small")}
    detail = {
        "append ratio": rounded(ratios["append"]),
        "append ratio of totals": rounded(appends.total_ratio("large", "small")),
        # The log's own work is user time; system time also pays for memory and disk blocks never used before.
        "append, ratio of user CPU": rounded(cpu.total_ratio("large user", "small user")),
        "append, ratio of system CPU": rounded(cpu.total_ratio("large system", "small system")),
        "append, spread": rounded(max(appends.spread("large"), appends.spread("small"))),
        **_microseconds("append", appends, sizes.growth_append_slice_bytes // SMALL_BATCH_BYTES),
        "read ratio": rounded(ratios["read"]),
        "bare pread ratio": rounded(reads.ratio("large bare", "small bare")),
        **_microseconds("read", reads, sizes.growth_reads_per_slice),
        "slices": sizes.growth_append_slices,
    }
    notes = [lab.large_note]
    if available_memory_bytes() < 1.1 * fill.size_bytes:
        notes.append("the page cache cannot hold the large log: its reads were partly cold")
    measure = f"{title}, 16 kB append and random read (worst)"
    return [Row(measure, max(ratios.values()), "x", Bar("<=", 1.2), detail, "; ".join(filter(None, notes)))]


def _compare_reads(lab: Lab, large: PartitionLog, small: PartitionLog, tick: Tick) -> Samples:
    period = _LARGE_TURN_RECORDS + _SMALL_TURN_RECORDS
    turns = large.log_end_offset // period
    small_end = small.log_end_offset

    def in_large(stream: random.Random) -> int:
        # Only where the batches are of 16 kB, as in the small log.
        return stream.randrange(turns) * period + _LARGE_TURN_RECORDS + stream.randrange(_SMALL_TURN_RECORDS)

    per_slice = lab.sizes.growth_reads_per_slice
    of_large = _Reads(large, in_large, per_slice)
    of_small = _Reads(small, lambda stream: stream.randrange(small_end), per_slice)
    sides = {
        "large": of_large.through_log,
        "small": of_small.through_log,
        "large bare": of_large.bare,
        "small bare": of_small.bare,
    }
    try:
        # Closed segments load their index at the first read: once, and not a cost of each read.
        for segment in large.segments:
            large.read(segment.base_offset)
        alternate(sides, 1)
        return alternate(sides, lab.sizes.growth_read_slices, tick)
    finally:
        of_large.close()
        of_small.close()


def _compare_appends(lab: Lab, large: PartitionLog, folder: Path, tick: Tick) -> tuple[Samples, Samples]:
    """Wall and CPU time. Each slice of the small side has a log of its own, so that it stays small."""
    sizes = lab.sizes
    pool = Pool.small()
    cpu: dict[str, list[float]] = {f"{size} {mode}": [] for size in ("large", "small") for mode in ("user", "system")}
    numbers = count()

    def append(name: str, log: PartitionLog) -> float:
        # Both sides begin with an empty cache and write into memory that was used before: see `storage_append`.
        evict([log.segments[-1].path], sync=False)
        before = resource.getrusage(resource.RUSAGE_SELF)
        took_s = seconds(lambda: append_windowed(log, pool.take(sizes.growth_append_slice_bytes), SMALL_IN_FLIGHT))
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu[f"{name} user"].append(after.ru_utime - before.ru_utime)
        cpu[f"{name} system"].append(after.ru_stime - before.ru_stime)
        return took_s

    def append_to_small() -> float:
        with PartitionLog.open(folder / f"small-{next(numbers)}", sizes.config) as small:
            append_windowed(small, pool.take(sizes.reference_bytes), SMALL_IN_FLIGHT)
            return append("small", small)

    sides = {"large": lambda: append("large", large), "small": append_to_small}
    alternate(sides, 1)  # warm up
    for costs in cpu.values():
        costs.clear()
    return alternate(sides, sizes.growth_append_slices, tick), Samples(cpu)


def _microseconds(what: str, samples: Samples, per_slice: int) -> dict[str, float]:
    return {
        f"{what}, {side}, µs": rounded(samples.median(side) / per_slice * 1e6)
        for side in samples.costs
        if "bare" not in side
    }


def clean_open(lab: Lab) -> list[Row]:
    """Opening the large log after it was closed in good order, with nothing of it in memory."""
    fill = lab.fill()
    size = size_text(fill.size_bytes)
    taken: dict[str, list[float]] = {"cold": [], "warm": []}
    scanned_bytes = 0
    with lab.reporter.task(f"opening {size}", 2 * lab.sizes.opens) as tick:
        for _ in range(lab.sizes.opens):
            for state, times in taken.items():
                if state == "cold":
                    evict(path for path in fill.path.iterdir() if path.is_file())
                begin = time.perf_counter()
                with PartitionLog.open(fill.path, lab.sizes.config) as log:
                    times.append(time.perf_counter() - begin)
                    scanned_bytes = max(scanned_bytes, log.recovery.scanned_bytes)
                tick()
    detail = {
        "cold, slowest s": rounded(max(taken["cold"])),
        "warm, median s": rounded(median(taken["warm"])),
        "scanned bytes": scanned_bytes,
        "opens": len(taken["cold"]),
    }
    return [
        Row(
            f"open a cleanly closed partition of {size}",
            median(taken["cold"]),
            "s",
            Bar("<=", 0.5),
            detail,
            lab.large_note,
        )
    ]


def open_after_kill(lab: Lab) -> list[Row]:
    """How much of the large log is scanned after its appender was killed, at several distances from a checkpoint."""
    fill = lab.fill()
    interval_bytes = lab.sizes.config.checkpoint_interval_bytes
    size = size_text(fill.size_bytes)
    scanned_mb, opened_s = [], []
    with lab.reporter.task(f"kill -9 on {size}", len(lab.sizes.kill_after_shares)) as tick:
        for share in lab.sizes.kill_after_shares:
            acknowledged_end_offset = _append_and_kill(lab, fill.path, int(interval_bytes * share))
            begin = time.perf_counter()
            with PartitionLog.open(fill.path, lab.sizes.config) as log:
                opened_s.append(time.perf_counter() - begin)
                scanned_mb.append(log.recovery.scanned_bytes / MB)
                if log.log_end_offset < acknowledged_end_offset:
                    raise RuntimeError(f"lost acknowledged records: {log.log_end_offset} < {acknowledged_end_offset}")
            tick()
    in_flight_bytes = max(LARGE_IN_FLIGHT * LARGE_BATCH_BYTES, SMALL_IN_FLIGHT * SMALL_BATCH_BYTES)
    detail: dict[str, Fact] = {
        "scanned MB": [rounded(number) for number in scanned_mb],
        "opened in s": [rounded(number) for number in opened_s],
        "checkpoint interval MB": rounded(interval_bytes / MB),
        "in flight MB": rounded(in_flight_bytes / MB),
    }
    bar = Bar("<=", rounded((interval_bytes + in_flight_bytes) / MB))
    return [
        Row(
            f"scanned after kill -9 of a partition of {size} (worst)",
            max(scanned_mb),
            "MB",
            bar,
            detail,
            lab.large_note,
        )
    ]


def _append_and_kill(lab: Lab, path: Path, unchecked_bytes: int) -> int:
    """Let a child append, kill it; the end of what it said to be acknowledged."""
    with lab.child("append", path, unchecked_bytes) as child:
        said = next(iter(child))
        time.sleep(0.05)  # in the midst of an append, not right after one
        child.kill()
    return int(said["acknowledged_end_offset"])
