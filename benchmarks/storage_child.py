"""The processes of their own that the storage benchmarks need: one fills a log, one appends until it is killed.

They print one JSON line for each step. Nothing else is imported here, so that resident memory is that of a log.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.machine import resident_bytes
from benchmarks.workload import LARGE_IN_FLIGHT, MIB, SMALL_IN_FLIGHT, Pool, append_windowed
from lograft.contract.process import tune_process
from lograft.storage import LogConfig, PartitionLog

# Both batch sizes in turn, so that one log serves random reads of 16 kB and shows the memory that 1 MB batches take.
TURN_BYTES = 16 * MIB


def _say(**facts: float) -> None:
    print(json.dumps(facts), flush=True)


def fill(config: LogConfig, path: Path, size_bytes: int, sample_bytes: int) -> None:
    """Append ``size_bytes``, and say after every ``sample_bytes`` how much memory is resident."""
    large, small = Pool.large(4), Pool.small(64)
    begin, next_sample = time.perf_counter(), sample_bytes
    with PartitionLog.open(path, config) as log:
        while log.size_bytes < size_bytes:
            append_windowed(log, large.take(TURN_BYTES), LARGE_IN_FLIGHT)
            append_windowed(log, small.take(TURN_BYTES), SMALL_IN_FLIGHT)
            if log.size_bytes >= next_sample:
                next_sample += sample_bytes
                _say(resident_mb=resident_bytes() / 1e6, seconds=time.perf_counter() - begin)


def append_until_killed(config: LogConfig, path: Path, unchecked_bytes: int) -> None:
    """Append until ``unchecked_bytes`` are acknowledged since a checkpoint, say so, and go on slowly."""
    large, small = Pool.large(4), Pool.small(64)
    with PartitionLog.open(path, config) as log:
        # Opening leaves a checkpoint; the log takes the next one by itself, and we go on from there.
        append_windowed(log, large.take(config.checkpoint_interval_bytes), LARGE_IN_FLIGHT)
        log.flush()
        append_windowed(log, large.take(unchecked_bytes), LARGE_IN_FLIGHT)
        while True:
            _say(acknowledged_end_offset=log.flushed_end_offset)
            append_windowed(log, small.take(64 << 10), SMALL_IN_FLIGHT)
            time.sleep(0.02)


def main() -> None:
    """``storage_child CONFIG fill PATH BYTES SAMPLE_BYTES`` or ``storage_child CONFIG append PATH BYTES``."""
    tune_process()
    settings, name, path, *numbers = sys.argv[1:]
    roles: dict[str, Callable[..., None]] = {"fill": fill, "append": append_until_killed}
    roles[name](LogConfig(**json.loads(settings)), Path(path), *map(int, numbers))


if __name__ == "__main__":
    main()
