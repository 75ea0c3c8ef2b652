"""Brokers as the quorum sees them: registration, sessions, fencing, elections, and what they watch."""

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from lograft.chaos.fake_broker import FakeBroker
from lograft.chaos.quorum_cluster import QuorumCluster, until, watching
from lograft.contract.errors import BrokerIdInUse, FencedEpoch, LogError, NotController, WrongCluster
from lograft.metadata_quorum.client import StateFollower
from lograft.metadata_quorum.core.invariants import violations
from lograft.metadata_quorum.errors_over_grpc import error_of
from lograft.v1 import cluster_pb2, cluster_pb2_grpc, metadata_pb2

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))


class Historian(StateFollower):
    """Sees the state after every single entry, and keeps what a test may ask for later."""

    def __init__(self) -> None:
        super().__init__()
        self.fenced_at: dict[int, list[int]] = {}
        self.partitions_at: dict[int, list] = {}
        self.snapshots = 0
        self.wrong: list[str] = []

    def take(self, response) -> None:
        for piece in response.snapshot_pieces:
            self.snapshots += 1
            super().take(cluster_pb2.WatchResponse(snapshot_pieces=[piece]))
        for entry in response.entries:
            if entry.version > self.state.version + 1:
                self.wrong.append(f"from {self.state.version} to {entry.version}")
            was_fenced = {broker_id: broker.fenced for broker_id, broker in self.state.brokers.items()}
            super().take(cluster_pb2.WatchResponse(entries=[entry]))
            for broker_id, broker in self.state.brokers.items():
                if broker.fenced and was_fenced.get(broker_id) is False:
                    self.fenced_at.setdefault(broker_id, []).append(self.state.version)
                    self.partitions_at[self.state.version] = [
                        partition for topic in self.state.topics.values() for partition in topic.partitions
                    ]
            self.wrong += violations(self.state)


@asynccontextmanager
async def world(folder, *broker_ids: int, nodes: int = 3, **options):
    """A quorum, brokers that may lead, a client, and a historian who watches it all."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(QuorumCluster(folder, nodes, **options))
        client = await stack.enter_async_context(cluster.client())
        history = Historian()

        async def record():
            number = 0
            while True:
                try:
                    async with watching(client, history, list(cluster.addresses.values())[number % nodes]) as stream:
                        async for _ in stream:
                            pass
                except LogError:
                    number += 1
                await asyncio.sleep(0.05)

        task = asyncio.create_task(record())
        stack.callback(task.cancel)
        brokers = {}
        for broker_id in broker_ids:
            brokers[broker_id] = await stack.enter_async_context(FakeBroker(cluster, broker_id))
        made = SimpleNamespace(cluster=cluster, client=client, history=history, brokers=brokers)
        await until(lambda: all(may_lead(made, each) for each in broker_ids), "brokers that may lead")
        yield made
        assert history.wrong == []


def may_lead(made, broker_id: int) -> bool:
    broker = made.history.state.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def partitions(made, topic: str = "t") -> list:
    return made.history.state.topic_named(topic).partitions


async def do(made, **operation) -> metadata_pb2.Applied:
    """Do it, and wait until the historian has seen it."""
    applied = await made.client.do(cluster_pb2.Operation(**operation))
    await until(lambda: made.history.state.version >= applied.version, "the historian")
    return applied


def topic(*replicas: tuple[int, ...], name: str = "t") -> cluster_pb2.CreateTopicOperation:
    return cluster_pb2.CreateTopicOperation(
        name=name, assignments=[cluster_pb2.ReplicaList(replicas=each) for each in replicas]
    )


@pytest.mark.requirement("R21", "R23")
@pytest.mark.parametrize("end", ["killed", "silent"])
def test_broker_whose_session_ends_is_fenced_with_new_leaders_in_one_version(tmp_path, end):
    async def main():
        async with world(tmp_path, 1, 2, 3) as made:
            await do(made, create_topic=topic(*[(1, 2, 3)] * 50, *[(2, 3, 1)] * 10))
            assert {p.leader for p in partitions(made)} == {1, 2}
            if end == "killed":
                await made.brokers[1].kill()
            else:
                made.brokers[1].silent = True
            await until(lambda: not may_lead(made, 1), "broker 1 is fenced")
            (version,) = made.history.fenced_at[1]
            for partition in made.history.partitions_at[version]:
                assert partition.leader in (2, 3)
                assert sorted(partition.in_sync) == [2, 3]
            assert {p.leader_epoch for p in made.history.partitions_at[version][:50]} == {
                made.history.partitions_at[version][50].leader_epoch + 1
            }
            if end == "silent":
                made.brokers[1].silent = False
                await until(lambda: may_lead(made, 1), "broker 1 is back by itself")
            assert not made.history.fenced_at.keys() - {1}

    asyncio.run(main())


@pytest.mark.requirement("R18", "R22", "R23")
def test_registration_and_what_may_lead(tmp_path):
    async def main():
        async with world(tmp_path, 1, 2) as made:
            # Not ready: registered and fenced, and given no leadership.
            async with FakeBroker(made.cluster, 3, ready=False) as third:
                await until(lambda: third.answer is not None, "an answer")
                await do(made, create_topic=topic((3, 1), (1, 3)))
                assert [(p.leader, list(p.in_sync)) for p in partitions(made)] == [(1, [1]), (1, [1])]
                assert not may_lead(made, 3)
                third.ready = True
                await until(lambda: may_lead(made, 3), "broker 3 may lead")

                # The same id, while the first one lives.
                second = FakeBroker(made.cluster, 3)
                with pytest.raises(BrokerIdInUse):
                    await second.start()
                assert third.error is None
                assert may_lead(made, 3)

            # Dead: the id is free, and the old incarnation is told so when it comes back.
            await until(lambda: not may_lead(made, 3), "broker 3 is fenced")
            async with FakeBroker(made.cluster, 3, directory_id=third.directory_id) as again:
                assert again.epoch > third.epoch
                await until(lambda: may_lead(made, 3), "broker 3 may lead again")
                third._tasks = [asyncio.create_task(third._keep_session())]
                await until(lambda: third.error is not None, "the old incarnation is told")
                assert isinstance(third.error, FencedEpoch)
                await third.kill()
                assert may_lead(made, 3)

    asyncio.run(main())


@pytest.mark.requirement("R19", "R24")
def test_other_directory_takes_a_broker_out_of_every_in_sync_set(tmp_path):
    async def main():
        async with world(tmp_path, 1, 2, 3) as made:
            await do(made, create_topic=topic((1, 2, 3), (2, 3, 1)))
            await do(made, create_topic=topic((1,), name="alone"))
            await made.brokers[1].kill()
            await until(lambda: not may_lead(made, 1), "broker 1 is fenced")
            # Its only copy: it stays in sync although it is dead, since nobody else can be.
            assert list(partitions(made, "alone")[0].in_sync) == [1]
            async with FakeBroker(made.cluster, 1):
                await until(lambda: may_lead(made, 1), "broker 1 may lead")
                every = [*partitions(made), *partitions(made, "alone")]
                assert [1 in (*p.in_sync, *p.eligible) for p in every] == [False, False, False]
                assert [p.leader for p in every][2] is None
                elect = cluster_pb2.ElectLeaderOperation(
                    topic="alone", partition=0, election=cluster_pb2.ELECTION_UNCLEAN
                )
                await do(made, elect_leader=elect)
                assert partitions(made, "alone")[0].leader == 1

    asyncio.run(main())


@pytest.mark.requirement("R23")
@pytest.mark.parametrize("harm", ["kill", "pause"])
def test_sessions_survive_the_loss_of_the_controller(tmp_path, harm):
    async def main():
        async with world(tmp_path, 1, 2, 3) as made:
            await do(made, create_topic=topic(*[(1, 2, 3)] * 3))
            for _ in range(EFFORT):
                leader = await made.cluster.wait_for_controller()
                if harm == "kill":
                    await made.cluster.kill(leader)
                else:
                    made.cluster.stop(leader)
                new = await made.cluster.wait_for_controller(other_than=[leader])
                epoch = (await made.cluster.status(new)).controller_epoch
                await until(
                    lambda epoch=epoch: all(b.answer.controller_epoch >= epoch for b in made.brokers.values()),
                    "the brokers found the new controller",
                )
                if harm == "kill":
                    await made.cluster.start(leader)
                else:
                    # Longer than a session: what the old controller would do when it wakes up is to fence everybody.
                    await asyncio.sleep(2.5)
                    made.cluster.cont(leader)
                await made.cluster.wait_for_status(leader, lambda s: s.state == "following", f"{leader} follows")
            await asyncio.sleep(1)
            await do(made, barrier=cluster_pb2.BarrierOperation())
            assert made.history.fenced_at == {}

    asyncio.run(main())


@pytest.mark.requirement("R23")
def test_pause_of_the_only_controller_fences_nobody(tmp_path):
    async def main():
        async with world(tmp_path, 1, 2, nodes=1) as made:
            made.cluster.stop("q1")
            await asyncio.sleep(3)
            made.cluster.cont("q1")
            await do(made, barrier=cluster_pb2.BarrierOperation())
            await asyncio.sleep(1)
            await do(made, barrier=cluster_pb2.BarrierOperation())
            assert made.history.fenced_at == {}

    asyncio.run(main())


@pytest.mark.requirement("R24", "R25")
def test_watch_is_served_by_every_node_and_goes_on_after_a_restart(tmp_path):
    async def main():
        async with world(tmp_path, 1) as made:
            followers = {name: Historian() for name in made.cluster.first}

            async def follow(name: str, version: int) -> None:
                async with watching(made.client, followers[name], made.cluster.nodes[name].address) as stream:
                    async for _ in stream:
                        if followers[name].state.version >= version:
                            return

            config = cluster_pb2.AlterConfigOperation(
                resource=metadata_pb2.CONFIG_RESOURCE_CLUSTER, set={"broker.session.timeout.ms": "2500"}
            )
            version = (await do(made, alter_config=config)).version
            for name, follower in followers.items():
                await asyncio.wait_for(follow(name, version), 20)
                assert [dict(values) for values in follower.state.configs.values()] == [
                    {"broker.session.timeout.ms": "2500"}
                ]
                assert follower.snapshots == 1
            for name, follower in followers.items():
                await made.cluster.kill(name)
                await made.cluster.wait_for_controller()
                config.set["broker.session.timeout.ms"] = str(3_000 + version)
                version = (await do(made, alter_config=config)).version
                await made.cluster.start(name)

                async def resumed(name=name, follower=follower, version=version) -> None:
                    while follower.state.version < version:
                        try:
                            await follow(name, version)
                        except LogError:
                            await asyncio.sleep(0.05)

                await asyncio.wait_for(resumed(), 20)
                # From its version on, not from the beginning.
                assert (follower.snapshots, follower.wrong) == (1, [])

            # A watcher that is ahead of a node is told nothing old.
            stub = cluster_pb2_grpc.MetadataServiceStub(made.client._channel(made.cluster.nodes["q1"].address))
            call = stub.Watch(cluster_pb2.WatchRequest(version=version + 1000))
            for _ in range(2):
                response = await call.read()
                assert not response.entries
                assert not response.snapshot_pieces
            call.cancel()
            call = stub.Watch(cluster_pb2.WatchRequest(cluster_id="another"))
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call.read()
            assert isinstance(error_of(failed.value), WrongCluster)

    asyncio.run(main())


@pytest.mark.requirement("R23", "R28")
def test_every_port_answers_health_reflection_and_who_the_controller_is(tmp_path):
    async def main():
        async with QuorumCluster(tmp_path) as cluster:
            leader = await cluster.wait_for_controller()
            for name, node in cluster.nodes.items():
                async with grpc.aio.insecure_channel(node.address) as channel:
                    health = health_pb2_grpc.HealthStub(channel)
                    answer = await health.Check(health_pb2.HealthCheckRequest(service="lograft.v1.ControllerService"))
                    assert answer.status == health_pb2.HealthCheckResponse.SERVING
                    listing = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
                        iter([reflection_pb2.ServerReflectionRequest(list_services="")])
                    )
                    services = {each.name async for each in _services(listing)}
                    assert {"lograft.v1.ControllerService", "lograft.v1.QuorumService"} <= services
                    if name == leader:
                        continue
                    controller = cluster_pb2_grpc.ControllerServiceStub(channel)
                    beats = iter([cluster_pb2.HeartbeatRequest(broker_id=1)])
                    calls = [
                        controller.Execute(cluster_pb2.ExecuteRequest(operations=[cluster_pb2.Operation()])),
                        controller.ListMoves(cluster_pb2.ListMovesRequest()),
                        controller.Heartbeat(beats).read(),
                    ]
                    for call in calls:
                        with pytest.raises(grpc.aio.AioRpcError) as failed:
                            await call
                        assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                        error = error_of(failed.value)
                        assert isinstance(error, NotController)
                        assert (error.controller_hint, error.address_hint) == (leader, cluster.nodes[leader].address)

    asyncio.run(main())


async def _services(listing):
    async for response in listing:
        for service in response.list_services_response.service:
            yield service
        return
