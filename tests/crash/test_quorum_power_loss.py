"""The power fails under a quorum node: journal, snapshot and identity hold what they promised, at every system call.

One traced run gives as many crash points as it has system calls. A careless run must fail the same test, or the test
could not find a forgotten sync.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lograft.chaos.journal_workload import Promises, judge
from lograft.chaos.power_loss import DiskModel, Marked, TraceEvent, read_trace, shim_environment, write_image

pytestmark = pytest.mark.requirement("R9", "R24")
EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
SEED = int(os.environ.get("LOGRAFT_TEST_SEED", "20261118"))
CRASH_POINTS = 250 * EFFORT
STEPS = 150


def traced_run(folder: Path, *options: str) -> list[TraceEvent]:
    root, trace, marks = folder / "root", folder / "trace", folder / "marks"
    root.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "lograft.chaos.journal_workload", root / "q1", marks, str(SEED), str(STEPS), *options],
        env={**os.environ, **shim_environment(root, trace, marks)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_trace(trace)


def broken_promises(events: list[TraceEvent], folder: Path, points: int) -> Iterator[str]:
    """Lose the power at many points of the trace, and list the promises that the files then break."""
    chance = random.Random(SEED)
    # The birth of the directory is short, and each of its windows is used once: all of it.
    crash_at = set(range(40)) | set(chance.sample(range(len(events)), min(points, len(events))))
    model, promises, taken = DiskModel(), Promises(), 0
    for number, event in enumerate(events):
        model.apply(event)
        for mark in model.marks[taken:]:
            promises.take(mark.decode().rstrip("\n"))
        taken = len(model.marks)
        if number not in crash_at:
            continue
        for mode in ("torn", "dropped"):
            image = folder / "image"
            write_image(model.image(random.Random(number), mode=mode), image)  # type: ignore[arg-type]
            where = f"({mode} at event {number} of {len(events)}, seed {SEED})"
            if (image / "q1").is_dir():
                # Twice: what the first opening wrote must open as well.
                for _ in range(2):
                    yield from (f"{problem} {where}" for problem in judge(image / "q1", promises))
            elif promises.held is not None:
                yield f"the directory is gone {where}"
            shutil.rmtree(image)


def test_quorum_files_when_power_fails_anywhere_then_keep_every_promise(tmp_path: Path) -> None:
    events = traced_run(tmp_path)
    assert sum(isinstance(event, Marked) for event in events) > STEPS
    assert list(broken_promises(events, tmp_path, CRASH_POINTS)) == []


def test_quorum_files_when_nothing_is_synced_then_the_test_finds_out(tmp_path: Path) -> None:
    problems = list(broken_promises(traced_run(tmp_path, "careless"), tmp_path, 60))
    assert any("term and vote" in problem or "the log ends" in problem for problem in problems)
