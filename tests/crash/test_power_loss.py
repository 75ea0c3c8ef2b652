"""The power fails: everything not yet synced is dropped or torn, judged from the system calls really made.

One traced run of the workload gives as many crash points as it has system calls: at each sampled one the model builds
what a disk may hold after a power loss there, the log is opened on it, and compared with what was promised before that
point. ``durability=os`` must fail the same test, or the test could not find a forgotten sync.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lograft.chaos.power_loss import (
    DiskModel,
    Marked,
    Opened,
    SyncBegan,
    SyncFailed,
    TraceEvent,
    read_trace,
    shim_environment,
    write_image,
)
from lograft.chaos.storage_workload import Mode, Promises, judge, workload_config
from lograft.contract.errors import LogError
from lograft.storage import Durability, PartitionLog

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
SEED = int(os.environ.get("LOGRAFT_TEST_SEED", "20261118"))
CRASH_POINTS = 100 * EFFORT
BATCHES = 400


def traced_run(
    folder: Path, durability: Durability, mode: Mode, *, fail_sync: int | None = None
) -> tuple[list[TraceEvent], subprocess.CompletedProcess[str]]:
    """Run the workload in a child under the shim, from an empty directory to the end (or to its failure)."""
    root, trace, marks = folder / "root", folder / "trace", folder / "marks"
    root.mkdir(parents=True)
    variables = shim_environment(root, trace, marks, fail_sync=fail_sync)
    command = [sys.executable, "-m", "lograft.chaos.storage_workload"]
    arguments = [str(root / "power-0"), str(marks), durability.value, mode, str(SEED), str(BATCHES)]
    done = subprocess.run(
        command + arguments, env={**os.environ, **variables}, capture_output=True, text=True, timeout=100, check=False
    )
    return read_trace(trace), done


def crash_points(events: list[TraceEvent], points: int, chance: random.Random) -> set[int]:
    """Some points anywhere, and as many right after the announcement of a truncation, deletion or compaction."""
    announced = [
        number
        for number, event in enumerate(events)
        if isinstance(event, Marked) and event.payload.startswith((b"truncating", b"deleting", b"compacting"))
    ]
    anywhere = set(chance.sample(range(len(events)), min(points, len(events))))
    close = [number for start in announced for number in range(start + 1, min(start + 40, len(events)))]
    return anywhere | set(chance.sample(close, min(points, len(close))))


def broken_promises(
    events: list[TraceEvent], folder: Path, durability: Durability, mode: Mode, points: int
) -> Iterator[str]:
    """Lose the power at random points of the trace and list the promises that the log then breaks."""
    chance = random.Random(f"{SEED}-{mode}-{durability}")
    crash_at = crash_points(events, points, chance)
    config = workload_config(durability, mode)
    model, promises, taken = DiskModel(), Promises(), 0
    for number, event in enumerate(events):
        model.apply(event)
        for mark in model.marks[taken:]:
            promises.take(mark.decode().rstrip("\n"))
        taken = len(model.marks)
        if number not in crash_at:
            continue
        for torn in ("torn", "dropped"):
            image = folder / "image"
            write_image(model.image(random.Random(number), mode=torn), image)  # type: ignore[arg-type]
            if not (image / "power-0").is_dir():
                assert not promises.acked, f"the directory is gone at event {number} (seed {SEED})"
            else:
                for problem in problems_on(image / "power-0", config, promises, mode):
                    yield f"{problem} ({torn} at event {number} of {len(events)}, seed {SEED})"
            shutil.rmtree(image)


def problems_on(directory: Path, config, promises: Promises, mode: Mode) -> list[str]:  # type: ignore[no-untyped-def]
    try:
        with PartitionLog.open(directory, config) as log:
            first = list(judge(log, promises, mode))
        with PartitionLog.open(directory, config) as log:
            return first + list(judge(log, promises, mode))
    except LogError as error:
        return [f"does not open: {error}"]


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("mode", list(Mode))
def test_fsync_log_when_power_fails_anywhere_then_keeps_every_promise(tmp_path: Path, mode: Mode) -> None:
    events, done = traced_run(tmp_path, Durability.FSYNC, mode)
    assert done.returncode == 0, done.stderr
    assert sum(isinstance(event, Marked) for event in events) > BATCHES / 2
    assert list(broken_promises(events, tmp_path, Durability.FSYNC, mode, CRASH_POINTS)) == []


def test_os_log_when_power_fails_then_loses_what_it_acked_so_the_test_can_fail(tmp_path: Path) -> None:
    events, done = traced_run(tmp_path, Durability.OS, Mode.APPEND)
    assert done.returncode == 0, done.stderr
    problems = list(broken_promises(events, tmp_path, Durability.OS, Mode.APPEND, 20))
    assert any("is gone" in problem for problem in problems)
    # But it opens: losing is not breaking.
    assert not any("does not open" in problem for problem in problems)


def failed_path(events: list[TraceEvent]) -> str:
    """Which file the injected failure was about."""
    failed = next(event for event in events if isinstance(event, SyncFailed))
    began = next(event for event in events if isinstance(event, SyncBegan) and event.sync_id == failed.sync_id)
    return next(
        event.path or ""
        for event in reversed(events[: events.index(began)])
        if isinstance(event, Opened) and event.inode == began.inode
    )


@pytest.mark.requirement("R9")
def test_log_when_a_sync_fails_then_acks_nothing_it_covered_and_reopens_at_the_last_flush(tmp_path: Path) -> None:
    config = workload_config(Durability.FSYNC, Mode.APPEND)
    of_segments = 0
    for failing in (4, *range(30, 40), 150):
        folder = tmp_path / str(failing)
        folder.mkdir()
        events, done = traced_run(folder, Durability.FSYNC, Mode.APPEND, fail_sync=failing)
        assert done.returncode != 0
        assert "StorageFailed" in done.stderr
        model, promises = DiskModel(), Promises()
        for event in events:
            model.apply(event)
        for mark in model.marks:
            promises.take(mark.decode().rstrip("\n"))
        if not promises.acked:
            continue
        # A disk that has dropped what the failed sync covered, as Linux does, keeps every promise.
        dropped, cached = folder / "image" / "power-0", folder / "root" / "power-0"
        write_image(model.image(random.Random(SEED), mode="dropped"), folder / "image")
        with PartitionLog.open(dropped, config) as log:
            assert list(judge(log, promises, Mode.APPEND)) == []
            confirmed_end = log.log_end_offset
        # In the page cache the same bytes still look sound: they must not be trusted.
        with PartitionLog.open(cached, config) as log:
            assert list(judge(log, promises, Mode.APPEND)) == []
            assert log.log_end_offset == confirmed_end, f"the failed sync was the {failing}th"
            if failed_path(events).endswith(".log"):
                assert log.recovery.cut_bytes > 0
                of_segments += 1
    assert of_segments > 0
