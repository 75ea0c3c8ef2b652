"""The `quorum` and `metadata` commands against real processes; above all the way back after losing the majority."""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from lograft.chaos.quorum_cluster import QuorumCluster, until, until_async
from lograft.cli.root import root
from lograft.metadata_quorum.client import StateFollower
from lograft.metadata_quorum.recover import INDEX_JUMP
from lograft.v1 import cluster_pb2


async def cli(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; its output and errors."""

    def invoke() -> str:
        result = CliRunner().invoke(root, [str(each) for each in arguments], env={"LOGRAFT_QUORUM": None})
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.output
        return result.output

    return await asyncio.to_thread(invoke)


def set_user(name: str) -> cluster_pb2.Operation:
    return cluster_pb2.Operation(set_user=cluster_pb2.SetUserOperation(name=name, password="sesame"))


def create_acl(principal: str) -> cluster_pb2.Operation:
    acl = {"principal": principal, "resource": 1, "resource_name": "t", "pattern": 1, "operation": 2}
    return cluster_pb2.Operation(create_acl=cluster_pb2.CreateAclOperation(acl=acl))


class Watching:
    """`lograft metadata watch` in a process of its own."""

    def __init__(self, folder: Path, *options: object) -> None:
        self._output = folder / "watch.out"
        self._errors = folder / "watch.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            command = [sys.executable, "-m", "lograft.cli", "metadata", "watch", *map(str, options)]
            self.process = subprocess.Popen(command, stdout=output, stderr=errors)

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self._output.read_text().splitlines()]

    async def seen(self, kind: str, value: str) -> None:
        await until(
            lambda: any(line["kind"] == kind and value in json.dumps(line) for line in self.lines()),
            f"{kind} of {value} is watched",
        )

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=20)

    @property
    def errors(self) -> str:
        return self._errors.read_text()


@contextlib.asynccontextmanager
async def watching(folder: Path, *options: object) -> AsyncIterator[Watching]:
    watcher = Watching(folder, *options)
    try:
        yield watcher
    finally:
        watcher.process.kill()
        watcher.process.wait()


def test_commands_when_the_quorum_is_one_node_then_work_without_secrets(tmp_path: Path) -> None:
    asyncio.run(one_node(tmp_path))


async def one_node(folder: Path) -> None:
    async with QuorumCluster(folder, 1) as cluster:
        config, address = cluster.nodes["q1"].config, cluster.nodes["q1"].address
        shown = await cli("quorum", "status", "--servers", address)
        assert "healthy, q1 leads" in shown
        async with cluster.client() as client, watching(folder, "--config", config, "--from", 1) as watcher:
            await client.do(set_user("ann"))
            version = (await client.do(create_acl("user:ann"))).version
            await watcher.seen("set_user", "ann")
            await watcher.seen("create_acl", "user:ann")
            assert watcher.interrupt() == 130
            assert watcher.errors == ""
            lines = watcher.lines()
        versions = [line["version"] for line in lines]
        assert versions == sorted(versions)
        assert max(versions) == version
        (line,) = [line for line in lines if line["kind"] == "set_user"]
        assert set(line["credential"]) == {"scheme", "n", "r", "p"}
        dumped = await cli("metadata", "dump", "--node", address, "--current")
        told = json.loads(dumped)
        assert told["version"] > version
        assert told["users"] == [{"name": "ann", "scheme": "scrypt"}]
        assert told["acls"][0]["operation"] == "ACL_OPERATION_READ"
        assert "hash" not in dumped
        assert "salt" not in dumped
        for refused, why in {
            ("transfer",): "the other members are none",
            ("remove", "q1"): "the last member cannot be removed",
            ("remove", "q9"): "q9 is not a member",
            ("add", "q1", address): "q1 is a member already",
            ("add", "q2", "127.0.0.1:1"): "no quorum node answers at 127.0.0.1:1",
        }.items():
            told = await cli("quorum", *refused, "--config", config, code=1)
            assert told.startswith("error: the quorum's members stay as they are")
            assert why in told
        assert "in use by another process" in await cli("quorum", "recover", "--config", config, "--yes", code=1)


@pytest.mark.requirement("R23")
def test_recover_when_the_majority_is_lost_then_answered_changes_stay_and_others_join(tmp_path: Path) -> None:
    asyncio.run(lose_the_majority(tmp_path))


async def lose_the_majority(folder: Path) -> None:
    async with QuorumCluster(folder, 3) as cluster:
        config = cluster.nodes["q1"].config
        before = await live_a_little(cluster)
        await cluster.terminate("q2")
        shutil.copytree(cluster.nodes["q2"].directory, folder / "q2.old")
        await cluster.kill("q1", "q3")
        cluster.wipe("q2")
        cluster.wipe("q3")
        assert "q1, q2, q3" in await cli("quorum", "recover", "--config", config, "--dry-run")
        assert "is a quorum of one now" in await cli("quorum", "recover", "--config", config, "--yes")
        await cluster.start("q1")
        await cluster.wait_for_controller()
        status = await cluster.status("q1")
        assert status is not None
        assert [member.name for member in status.members] == ["q1"]
        await old_node_is_refused(cluster, folder / "q2.old")
        await others_join(cluster, before)
        told = await cli("quorum", "remove", "q1", "--config", cluster.nodes["q2"].config)
        assert "q1 is not a member any more; the quorum is q2, q3" in told


async def live_a_little(cluster: QuorumCluster) -> StateFollower:
    """Changes, while somebody watches and nodes come and go; the state after all of it."""
    config = cluster.nodes["q1"].config
    async with cluster.client() as client, watching(cluster.folder, "--config", config, "--from", 1) as watcher:
        await client.execute(*(set_user(f"u{number}") for number in range(10)))
        assert "q2 leads" in await cli("quorum", "transfer", "--config", config, "--to", "q2")
        await client.do(create_acl("user:watched"))
        await watcher.seen("create_acl", "user:watched")
        # The node it watches goes away: it goes on with another, and misses nothing.
        await cluster.terminate("q1")
        await client.do(create_acl("user:meanwhile"))
        await watcher.seen("create_acl", "user:meanwhile")
        assert "trying another node" in watcher.errors
        assert "q1 does not answer" in await cli("quorum", "status", "--config", config, code=1)
        await cluster.start("q1")
        return await cluster.equal_states()


async def old_node_is_refused(cluster: QuorumCluster, copy: Path) -> None:
    """It must not mix with the recovered one: it waits for voters that do not exist any more, and changes nothing."""
    q1, q2 = cluster.nodes["q1"], cluster.nodes["q2"]
    shutil.copytree(copy, q2.directory)
    await cluster.start("q2")
    old = await cluster.wait_for_status("q2", lambda s: "the stream is meant for q1:" in s.problem, "q2 is refused")
    assert old.state == "electing"
    assert "healthy, q1 leads" in await cli("quorum", "status", "--servers", q1.address)
    await cluster.kill("q2")
    cluster.wipe("q2")


async def others_join(cluster: QuorumCluster, before: StateFollower) -> None:
    """Two empty nodes are added; all three agree with each other and with all that was answered before."""
    config = cluster.nodes["q1"].config
    await cluster.start("q2", "q3")
    for name in ("q2", "q3"):
        added = await cli("quorum", "add", name, cluster.nodes[name].address, "--config", config)
        assert f"{name} is a member now" in added
    async with cluster.client() as client:
        await client.do(create_acl("user:afterwards"))
    after = await cluster.equal_states()
    assert len(before.state.users) == 10
    assert after.state.users == before.state.users
    principals = {acl.principal for acl in after.state.acls}
    assert principals == {"user:watched", "user:meanwhile", "user:afterwards"}
    assert [member.name for member in after.state.members] == ["q1", "q2", "q3"]
    assert after.state.cluster_id == before.state.cluster_id
    # Who followed the old quorum, even beyond what q1 had, is given the new truth.
    assert after.state.version > before.state.version + INDEX_JUMP
    before.state.version += 50
    before.state.users["never"] = before.state.users["u0"]
    async with cluster.client() as client:
        stream = client.watch(before, cluster.nodes["q3"].address)
        async for _ in stream:
            if before.state.version >= after.state.version:
                break
        await stream.aclose()
    assert before.state.users == after.state.users

    async def healthy() -> bool:
        result = await asyncio.to_thread(CliRunner().invoke, root, ["quorum", "status", "--config", str(config)])
        return result.exit_code == 0

    await until_async(healthy, "all three agree")
