"""A process that appends is killed with SIGKILL at random moments, hundreds of times; nothing it promised is lost."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from lograft.chaos.storage_workload import Mode, judge, read_promises, run_workload, workload_config
from lograft.storage import Durability, PartitionLog

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
SEED = int(os.environ.get("LOGRAFT_TEST_SEED", "20261118"))
KILLS = {Mode.APPEND: 160, Mode.TRIM: 80, Mode.COMPACT: 60}


def wait_for_growth(journal: Path, process: multiprocessing.process.BaseProcess, size: int) -> None:
    """Until the child has made its first promises of this life: a kill before that would show nothing."""
    while process.is_alive() and (not journal.exists() or journal.stat().st_size <= size):
        time.sleep(0.001)


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.timeout(120 * EFFORT)
def test_log_when_killed_at_random_moments_then_keeps_every_promise(tmp_path: Path, mode: Mode) -> None:
    chance = random.Random(f"{SEED}-{mode}")
    spawner = multiprocessing.get_context("forkserver")
    spawner.set_forkserver_preload(["lograft.chaos.storage_workload"])
    directory, journal = tmp_path / "kill-0", tmp_path / "journal"
    config = workload_config(Durability.FSYNC, mode)
    survived = 0
    for life in range(KILLS[mode] * EFFORT):
        if life % 20 == 0:  # a fresh log now and then, so that the whole of it stays quick to check
            directory, journal = tmp_path / f"life{life}" / "kill-0", tmp_path / f"journal{life}"
            directory.parent.mkdir()
        size = journal.stat().st_size if journal.exists() else 0
        process = spawner.Process(
            target=run_workload, args=(directory, journal, Durability.FSYNC, mode, chance.getrandbits(32), 1_000_000)
        )
        process.start()
        assert process.pid is not None
        wait_for_growth(journal, process, size)
        time.sleep(chance.random() * 0.06)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL, f"the workload failed by itself (seed {SEED}, life {life})"
        process.close()
        with journal.open() as lines:
            promises = read_promises(lines)
        with PartitionLog.open(directory, config) as log:
            problems = list(judge(log, promises, mode))
            survived += len(promises.acked)
        assert problems == [], f"seed {SEED}, life {life}"
    assert survived > 1000


def test_promises_when_a_truncation_was_cut_short_then_nothing_is_expected_of_what_it_was_after() -> None:
    before = ["opened 0 0\n", "acked 100 1:aa,2:bb\n", "acked 190 3:cc\n", "truncating 180\n"]
    # The truncation happened; the next life wrote offset 190 anew and was killed before it could say so.
    after = ["opened 0 190\n", "opened 0 191\n", "acked 191 4:dd\n", "truncating 191\n", "truncated 191\n"]
    assert read_promises([*before, *after]).acked == {100: ("1", "aa"), 101: ("2", "bb")}
