"""Appending: 1 MB batches, 16 kB batches, and many partitions at once."""

from itertools import cycle, islice
from pathlib import Path

from benchmarks.harness import Bar, Row, Samples, Tick, alternate, rounded, seconds
from benchmarks.lab import MB, Lab
from benchmarks.workload import LARGE_IN_FLIGHT, SMALL_IN_FLIGHT, BareFile, Pool, append_windowed, evict, segment_files
from lograft.contract.ids import TopicPartition
from lograft.storage import DataDirectory, PartitionLog


def large_batches(lab: Lab) -> list[Row]:
    """1 MB batches, a few in flight, against a bare loop of 1 MB writes and syncs."""
    return [_against_bare(lab, "append, 1 MB batches, fsync", Pool.large(), LARGE_IN_FLIGHT, Bar(">=", 0.85))]


def small_batches(lab: Lab) -> list[Row]:
    """16 kB batches, 64 in flight, against the same bare loop of 1 MB writes."""
    return [_against_bare(lab, "append, 16 kB batches 64 deep, fsync", Pool.small(), SMALL_IN_FLIGHT, Bar(">=", 0.5))]


def _against_bare(lab: Lab, title: str, pool: Pool, in_flight: int, bar: Bar) -> Row:
    slice_bytes = lab.sizes.append_slice_bytes
    slices = lab.sizes.append_slices
    with lab.workplace("append") as folder, lab.reporter.task(title, 4 * slices) as tick:
        sides = _AppendSides(folder, lab, pool, in_flight)
        samples = sides.compare(slices, tick, reuse_memory=True)
        growing = sides.compare(slices, tick, reuse_memory=False)
        batches_per_sync = sides.batches_per_sync
        sides.close()
    ratios = {
        "page cache reused": 1 / samples.ratio("log", "bare"),
        "page cache growing": 1 / growing.ratio("log", "bare"),
    }
    detail = {
        **{f"{state}, ratio": rounded(ratio) for state, ratio in ratios.items()},
        **throughput(samples, slice_bytes),
        "batches per sync": rounded(batches_per_sync),
        "in flight": in_flight,
        "page cache growing, log MB/s": rounded(slice_bytes / MB / growing.median("log")),
        "page cache growing, bare MB/s": rounded(slice_bytes / MB / growing.median("bare")),
    }
    measure = f"{title}, against bare 1 MB writev + fdatasync (worst)"
    return Row(measure, min(ratios.values()), "x", bar, detail)


class _AppendSides:
    """A log and a bare file that grow by the same bytes."""

    def __init__(self, folder: Path, lab: Lab, pool: Pool, in_flight: int) -> None:
        self._slice_bytes = lab.sizes.append_slice_bytes
        self._pool, self._bare_pool = pool, Pool.large()
        self._in_flight = in_flight
        self._log = PartitionLog.open(folder / "log-0", lab.sizes.config)
        self._bare = BareFile(folder / "bare")

    def compare(self, slices: int, tick: Tick, *, reuse_memory: bool) -> Samples:
        """Append slices in turn. With ``reuse_memory`` the page cache gives back each slice before the next.

        A virtual machine takes each page from its host at the first touch, which costs ten times the write: a page
        cache that grows into such memory hides the log's own cost on both sides.
        """

        def through_log() -> float:
            taken_s = seconds(lambda: append_windowed(self._log, self._pool.take(self._slice_bytes), self._in_flight))
            if reuse_memory:
                evict(segment_files(self._log.path), sync=False)
            return taken_s

        def bare() -> float:
            taken_s = seconds(lambda: self._bare.append(self._bare_pool.take_buffers(self._slice_bytes)))
            if reuse_memory:
                self._bare.evict()
            return taken_s

        sides = {"log": through_log, "bare": bare}
        alternate(sides, 1)  # warm up; also creates the files
        return alternate(sides, slices, tick)

    @property
    def batches_per_sync(self) -> float:
        """How many batches one group commit held, on average."""
        return self._log.log_end_offset / self._pool.records / self._log.writer.groups

    def close(self) -> None:
        """Close both."""
        self._log.close()
        self._bare.close()


def throughput(samples: Samples, size_bytes: int) -> dict[str, float | int]:
    """MB/s, spread and number of slices of both sides."""
    facts: dict[str, float | int] = {}
    for side, costs in samples.costs.items():
        facts[f"{side} MB/s"] = rounded(size_bytes / MB / samples.median(side))
        facts[f"{side} spread"] = rounded(samples.spread(side))
        facts["slices"] = len(costs)
    return facts


class _Partitions:
    """A data directory whose partitions are appended to in turn."""

    def __init__(self, path: Path, lab: Lab, count: int, tick: Tick) -> None:
        self.directory = DataDirectory(path, cluster_id="bench", broker_id=1)
        self.logs = []
        for number in range(count):
            self.logs.append(self.directory.open_log(TopicPartition("many", number), "bench", lab.sizes.config))
            tick()

    def append_round(self, pool: Pool, batches: int) -> None:
        """One batch after the other to the partitions in turn, all submitted, then all awaited."""
        logs = islice(cycle(self.logs), batches)
        pending = [log.submit(batch) for log, batch in zip(logs, pool.take(batches * pool.size_bytes), strict=True)]
        for append in pending:
            append.wait()

    def timed_round(self, pool: Pool, batches: int) -> float:
        """Seconds of one round. Afterwards the page cache gives its memory back (see `_AppendSides.compare`)."""
        taken_s = seconds(lambda: self.append_round(pool, batches))
        evict((log.segments[-1].path for log in self.logs), sync=False)
        return taken_s


def many_partitions(lab: Lab) -> list[Row]:
    """The same batches to 1,000 partitions and to 6, synced before they are acknowledged."""
    sizes = lab.sizes
    title = f"append to {sizes.partitions:,} partitions in turn, 16 kB each, fsync"
    pool = Pool.small()
    steps = sizes.partitions + sizes.few_partitions + 2 * sizes.partition_rounds
    with lab.workplace("partitions") as folder, lab.reporter.task(title, steps) as tick:
        many = _Partitions(folder / "many", lab, sizes.partitions, tick)
        few = _Partitions(folder / "few", lab, sizes.few_partitions, tick)
        with many.directory, few.directory:
            sides = {
                "many": lambda: many.timed_round(pool, sizes.partitions),
                "few": lambda: few.timed_round(pool, sizes.partitions),
            }
            alternate(sides, 1)  # warm up; also creates the files
            samples = alternate(sides, sizes.partition_rounds, tick)
    round_bytes = sizes.partitions * pool.size_bytes
    measure = f"{title}, against the same bytes to {sizes.few_partitions}"
    value = 1 / samples.ratio("many", "few")
    return [Row(measure, value, "x", Bar(">=", 0.4), throughput(samples, round_bytes))]
