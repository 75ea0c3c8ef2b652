"""The storage benchmarks: which there are, in which order they run, and in which they are shown."""

import resource
from collections.abc import Callable
from pathlib import Path

from benchmarks import storage_append, storage_codec, storage_read, storage_scale
from benchmarks.harness import Reporter, Row
from benchmarks.lab import Lab, Sizes
from lograft.contract.process import tune_process

# Each with the words that `--only` looks at. The order is that of the result; the large log is filled at the first
# measure that needs it, and killed appenders come last because they leave it longer.
MEASURES: dict[str, Callable[[Lab], list[Row]]] = {
    "append 1 MB batches": storage_append.large_batches,
    "append 16 kB batches": storage_append.small_batches,
    "read cold segments": storage_read.cold_reads,
    "growth (append and read, 10 GB against 10 MB)": storage_scale.growth,
    "partitions (append to 1,000 against 6)": storage_append.many_partitions,
    "codec (encode, decode)": storage_codec.codec,
    "open clean (10 GB)": storage_scale.clean_open,
    "open after kill (10 GB)": storage_scale.open_after_kill,
    "memory (10 GB)": storage_scale.resident_memory,
}

# Its figures depend on the state of Python's heap: it runs in a fresh one, whatever else is measured.
_FIRST = "codec (encode, decode)"


def run(
    data: Path, *, quick: bool, large_bytes: int | None, slices: int | None, only: str, reporter: Reporter
) -> list[Row]:
    """Run the measures whose name holds ``only``; files go to ``data``, which the caller removes."""
    tune_process()
    _allow_open_files()
    sizes = Sizes.quick() if quick else Sizes()
    if large_bytes is not None:
        sizes = sizes.with_large_bytes(large_bytes)
    if slices is not None:
        sizes = sizes.with_slices(slices)
    lab = Lab(data, sizes, reporter)
    if lab.large_note:
        reporter.say(f"large log: {lab.large_note}")
    chosen = [name for name in MEASURES if only.lower() in name.lower()]
    rows = {name: MEASURES[name](lab) for name in sorted(chosen, key=lambda name: name != _FIRST)}
    return [row for name in chosen for row in rows[name]]


def _allow_open_files() -> None:
    """1,000 partitions keep 1,000 files open; the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16_384 if hard == resource.RLIM_INFINITY else min(16_384, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
