"""Disks that are full, fail, or come back damaged or empty: the node says so, and the others do not suffer."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from lograft.chaos.power_loss.build import shim_environment
from lograft.chaos.quorum_cluster import QuorumCluster, until
from lograft.chaos.quorum_workload import QuorumWorkload
from lograft.contract.errors import LogError, MembershipRefused
from lograft.v1 import cluster_pb2

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
pytestmark = pytest.mark.requirement("R24", "R27")
TINY_SNAPSHOTS = {"entries": 50, "history_entries": 5}
BARRIER = cluster_pb2.Operation(barrier=cluster_pb2.BarrierOperation())


def with_faults(cluster: QuorumCluster, name: str, **faults) -> Path:
    """The node's disk is faulty from its next start on; returns the file that makes it full."""
    full = cluster.folder / f"{name}.full"
    node = cluster.nodes[name]
    node.environment = shim_environment(node.directory, cluster.folder / f"{name}.trace", full_flag=full, **faults)
    return full


def is_full(status) -> bool:
    return status.state == "standing still" and "disk full" in status.problem


async def bring_back(cluster: QuorumCluster, name: str) -> None:
    """The documented way: remove, empty the directory, start, add."""
    node = cluster.nodes[name]
    async with cluster.client() as client:
        old = {m.name: m.directory_id for m in await client.remove_member(name)}
        assert name not in old
        if node.directory.exists() and not node.running:
            cluster.wipe(name)
        if not node.running:
            await cluster.start(name)
        members = {m.name: m.directory_id for m in await client.add_member(name, node.address)}
    assert sorted(members) == sorted(cluster.first)
    await cluster.wait_for_status(name, lambda s: s.state in ("following", "leading"), f"{name} takes part")


@pytest.mark.parametrize("short", [False, True], ids=["", "short-write"])
def test_full_disk_halts_a_node_until_there_is_space(tmp_path, short):
    async def main():
        cluster = QuorumCluster(tmp_path, snapshots=TINY_SNAPSHOTS)
        full = {name: with_faults(cluster, name, full_short_write=short) for name in cluster.first}
        async with cluster, QuorumWorkload(cluster) as load:
            for role in ("leader", "follower"):
                await load.progress(20)
                leader = await cluster.wait_for_controller()
                name = leader if role == "leader" else next(each for each in cluster.first if each != leader)
                full[name].touch()
                await cluster.wait_for_status(name, is_full, f"{name} says that its disk is full")
                await cluster.wait_for_controller(other_than=[name])
                await load.progress(60)
                full[name].unlink()
                await cluster.wait_for_status(name, lambda s: s.state == "following", f"{name} goes on")

            # All of them: everything stops, and goes on.
            for name in cluster.first:
                full[name].touch()
            for name in cluster.first:
                # One whose log does not grow any more does not notice, and says that it has no leader.
                await cluster.wait_for_status(name, lambda s: s.state != "leading" and s.problem, f"{name} complains")
            for name in cluster.first:
                full[name].unlink()
            await load.progress(20)
            await load.finish()

    asyncio.run(main())


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_failed_sync_ends_the_process(tmp_path, role):
    async def main():
        cluster = QuorumCluster(tmp_path)
        name = "q2"
        cluster.may_complain.add(name)
        with_faults(cluster, name, fail_sync=60, fail_later_syncs=True)
        async with cluster, cluster.client() as client:
            leader = await cluster.wait_for_controller()
            wanted = name if role == "leader" else "q1"
            if leader != wanted:
                assert await client.transfer(wanted) == wanted
            async with QuorumWorkload(cluster) as load:
                assert await cluster.nodes[name].ended() == 1
                said = cluster.nodes[name].log
                assert "Input/output error" in said
                assert "Traceback" not in said
                await load.progress(20)
                cluster.nodes[name].environment = {}
                await cluster.start(name)
                await load.finish()

    asyncio.run(main())


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 0x40
    path.write_bytes(data)


DAMAGE = {
    "journal": lambda directory: flip(directory / "journal", (directory / "journal").stat().st_size // 2),
    "journal-tail": lambda directory: flip(directory / "journal", -3),
    "journal-gone": lambda directory: (directory / "journal").unlink(),
    "journal-empty": lambda directory: (directory / "journal").write_bytes(b""),
    "snapshot": lambda directory: flip(directory / "snapshot", (directory / "snapshot").stat().st_size // 2),
    "snapshot-cut": lambda directory: os.truncate(directory / "snapshot", 100),
    "snapshot-gone": lambda directory: (directory / "snapshot").unlink(),
    "node.meta": lambda directory: flip(directory / "node.meta", -5),
    "node.meta-gone": lambda directory: (directory / "node.meta").unlink(),
}


def test_damaged_node_refuses_to_start_and_returns_by_remove_and_add(tmp_path):
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)

    async def main():
        async with (
            QuorumCluster(tmp_path, snapshots=TINY_SNAPSHOTS) as cluster,
            QuorumWorkload(cluster, pause_s=0.01) as load,
        ):
            leader = await cluster.wait_for_controller()
            name = next(each for each in cluster.first if each != leader)
            node = cluster.nodes[name]
            await cluster.wait_for_status(name, lambda s: s.snapshot_version > 0, "a snapshot")
            await cluster.kill(name)
            kept = {path.name: path.read_bytes() for path in node.directory.iterdir() if path.is_file()}
            for what, damage in DAMAGE.items() if EFFORT > 1 else dice.sample(list(DAMAGE.items()), 4):
                damage(node.directory)
                written = len(node.log)
                node.spawn()
                assert await node.ended() == 1, what
                said = node.log[written:]
                assert "Traceback" not in said, what
                assert str(node.directory) in said, f"{what}: {said}"
                assert "must not vote any more" in said, f"{what}: {said}"
                for file, data in kept.items():
                    (node.directory / file).write_bytes(data)
                await load.progress(1)
            DAMAGE["journal"](node.directory)
            await bring_back(cluster, name)
            await load.progress(20)
            await load.finish()

    asyncio.run(main())


def test_wiped_node_under_its_old_name_has_no_vote(tmp_path):
    async def main():
        async with QuorumCluster(tmp_path) as cluster, QuorumWorkload(cluster, timeout_s=2) as load:
            await load.progress(20)
            leader = await cluster.wait_for_controller()
            wiped, healthy = (each for each in cluster.first if each != leader)
            await cluster.kill(wiped)
            cluster.wipe(wiped)
            await cluster.start(wiped)
            status = await cluster.wait_for_status(wiped, lambda s: s.state == "not a member", f"{wiped} is nobody")
            assert wiped in status.problem
            seen = await cluster.status(leader)
            assert [peer.connected for peer in seen.peers if peer.name == wiped] == [False]
            await load.progress(20)

            # One voter of three is left: with the wiped one's vote or acknowledgement it would be a majority.
            await cluster.kill(healthy)
            await cluster.wait_for_status(leader, lambda s: s.state == "electing", f"{leader} alone is no majority")
            async with cluster.client(timeout_s=2) as client:
                with pytest.raises(LogError):
                    await client.do(BARRIER)
            assert await cluster.leader() is None
            status = await cluster.status(wiped)
            assert (status.state, status.last_index) == ("not a member", 1)

            await cluster.start(healthy)
            await load.progress(20)
            async with cluster.client() as client:
                with pytest.raises(MembershipRefused, match="already"):
                    await client.add_member(wiped, cluster.nodes[wiped].address)
            await bring_back(cluster, wiped)
            await load.progress(20)
            await load.finish()

    asyncio.run(main())


def test_node_wiped_before_anybody_knew_the_cluster_waits(tmp_path):
    """All but one wiped: they must not found a second quorum beside the one that is down."""

    async def main():
        async with QuorumCluster(tmp_path) as cluster:
            await cluster.kill(*cluster.first)
            cluster.wipe("q2")
            cluster.wipe("q3")
            await cluster.start("q2", "q3")
            for name in ("q2", "q3"):
                status = await cluster.wait_for_status(name, lambda s: "waiting" in s.problem, f"{name} waits")
                assert "q1" in status.problem
            await cluster.start("q1")
            for name in ("q2", "q3"):
                await cluster.wait_for_status(name, lambda s: s.state == "not a member", f"{name} is nobody")
            assert await cluster.leader() is None
            statuses = await cluster.statuses()
            assert not any(statuses[name].cluster_id for name in ("q2", "q3"))

    asyncio.run(main())


def test_directory_in_use_is_refused(tmp_path):
    async def main():
        async with QuorumCluster(tmp_path, 1) as cluster:
            node = cluster.nodes["q1"]
            first = node.process
            node.process = None
            try:
                node.spawn()
                assert await node.ended() == 1
                assert "Traceback" not in node.log
            finally:
                node.process = first
            await until(lambda: node.running, "q1")
            await cluster.equal_states()

    asyncio.run(main())
