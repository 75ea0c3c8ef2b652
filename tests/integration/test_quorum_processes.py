"""Real processes that are killed and stopped while changes are made: nothing that was answered is ever lost."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lograft.chaos.quorum_cluster import QuorumCluster
from lograft.chaos.quorum_workload import QuorumWorkload

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
# So that something is written, renamed and trimmed nearly all the time.
TINY_SNAPSHOTS = {"entries": 50, "history_entries": 5}
pytestmark = [pytest.mark.requirement("R23", "R24"), pytest.mark.timeout(120 * EFFORT)]

Harm = Callable[[QuorumCluster, QuorumWorkload, random.Random], Awaitable[None]]


async def kill_leader(cluster: QuorumCluster, load: QuorumWorkload, dice: random.Random) -> None:
    leader = await cluster.wait_for_controller()
    await load.progress(dice.randrange(1, 60))
    await cluster.kill(leader)
    await load.progress(5)
    await cluster.start(leader)


async def kill_follower(cluster: QuorumCluster, load: QuorumWorkload, dice: random.Random) -> None:
    leader = await cluster.wait_for_controller()
    follower = dice.choice([name for name in cluster.first if name != leader])
    await load.progress(dice.randrange(1, 60))
    await cluster.kill(follower)
    await load.progress(dice.randrange(1, 120))
    await cluster.start(follower)


async def kill_all(cluster: QuorumCluster, load: QuorumWorkload, dice: random.Random) -> None:
    await load.progress(dice.randrange(20, 120))
    await cluster.kill(*cluster.first)
    await cluster.start(*cluster.first)
    await load.progress(5)


async def stop_leader(cluster: QuorumCluster, load: QuorumWorkload, dice: random.Random) -> None:
    leader = await cluster.wait_for_controller()
    await load.progress(dice.randrange(1, 60))
    cluster.stop(leader)
    await cluster.wait_for_controller(other_than=[leader])
    await load.progress(dice.randrange(1, 60))
    cluster.cont(leader)
    await load.progress(5)


async def kill_all_for_longer_than_clients_wait(
    cluster: QuorumCluster, load: QuorumWorkload, dice: random.Random
) -> None:
    await load.progress(dice.randrange(1, 60))
    await cluster.kill(*cluster.first)
    # Long enough for every client to give up: what it is told then must not be "not done" if it was done.
    await asyncio.sleep(0.7)
    await cluster.start(*cluster.first)
    await cluster.wait_for_controller()


async def hurt(folder: Path, harms: list[Harm], *, patience_s: float = 5.0, **options) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)
    async with (
        QuorumCluster(folder, **options) as cluster,
        QuorumWorkload(cluster, tasks=8, timeout_s=patience_s) as load,
    ):
        for harm in harms * EFFORT:
            print(harm.__name__)  # noqa: T201
            await harm(cluster, load, dice)
        await cluster.wait_for_controller()
        await load.progress(5)
        await load.finish()
        print(load.summary())  # noqa: T201


@pytest.mark.parametrize("snapshots", [None, TINY_SNAPSHOTS], ids=["", "during-snapshots"])
def test_answered_changes_survive_kills_on_all_nodes(tmp_path, snapshots):
    harms = [kill_leader, kill_follower, kill_all, kill_leader, kill_all]
    asyncio.run(hurt(tmp_path, harms, snapshots=snapshots))


def test_stopped_leader_that_continues_answers_nothing_wrong(tmp_path):
    asyncio.run(hurt(tmp_path, [stop_leader, stop_leader]))


def test_clients_that_gave_up_were_not_told_wrong(tmp_path):
    asyncio.run(hurt(tmp_path, [kill_all_for_longer_than_clients_wait] * 2, patience_s=0.6))
