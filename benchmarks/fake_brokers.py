"""Brokers that only exist for the quorum: they register and send heartbeats, and can crash or stop.

And a watcher that notes when the quorum has fenced one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio

from lograft.contract.ids import random_id
from lograft.metadata_quorum.channels import Dial
from lograft.metadata_quorum.client import QuorumClient
from lograft.v1 import cluster_pb2, cluster_pb2_grpc, metadata_pb2

_WHILE_FENCED_S = 0.02
_HEARTBEAT_S = 0.2


class FakeBroker:
    """One broker: a session for each `start`, ended by `crash` or `stop`."""

    def __init__(self, client: QuorumClient, channel: grpc.aio.Channel, broker_id: int) -> None:
        """``channel`` leads to the controller."""
        self._client, self._stub = client, cluster_pb2_grpc.ControllerServiceStub(channel)
        self._id, self._directory_id = broker_id, random_id()
        self._epoch = 0
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """A new incarnation; returns when it may lead."""
        registration = cluster_pb2.RegisterBrokerOperation(
            broker_id=self._id,
            incarnation_id=random_id(),
            directory_id=self._directory_id,
            endpoints=[
                metadata_pb2.Endpoint(name=name, host="127.0.0.1", port=1) for name in ("client", "replication")
            ],
        )
        self._epoch = (await self._client.do(cluster_pb2.Operation(register_broker=registration))).number
        self._call = self._stub.Heartbeat()
        version = 0
        while True:
            answer = await self._beat(version)
            version = answer.version
            if not answer.fenced:
                break
            await asyncio.sleep(_WHILE_FENCED_S)
        self._task = asyncio.get_running_loop().create_task(self._keep(version))

    async def _beat(self, version: int) -> cluster_pb2.HeartbeatResponse:
        request = cluster_pb2.HeartbeatRequest(
            broker_id=self._id, broker_epoch=self._epoch, version=version, ready=True
        )
        await self._call.write(request)
        answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise RuntimeError(f"the quorum has ended the session of broker {self._id}")
        return answer  # type: ignore[no-any-return]

    async def _keep(self, version: int) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            version = (await self._beat(version)).version

    def crash(self) -> None:
        """The connection breaks."""
        if self._call is not None:
            self._call.cancel()
        self.end()

    async def stop(self) -> None:
        """Say that it stops; returns when its partitions have other leaders."""
        stop = cluster_pb2.StopBrokerOperation(broker_id=self._id, broker_epoch=self._epoch)
        await self._client.do(cluster_pb2.Operation(stop_broker=stop))

    def end(self) -> None:
        """No more heartbeats."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


@asynccontextmanager
async def fake_brokers(client: QuorumClient, controller: str, brokers: int) -> AsyncIterator[list[FakeBroker]]:
    """Brokers 1, 2 and so on, all of which may lead."""
    async with Dial(controller).channel() as channel:
        started = [FakeBroker(client, channel, number) for number in range(1, brokers + 1)]
        try:
            await asyncio.gather(*(broker.start() for broker in started))
            yield started
        finally:
            for broker in started:
                broker.crash()


@dataclass(frozen=True, slots=True)
class Fence:
    """A broker was fenced."""

    # By `time.perf_counter`: when the committed entry arrived at the watcher.
    seen_at: float
    broker_id: int
    partitions: int
    leaderless: int


@asynccontextmanager
async def fences(address: str, version: int) -> AsyncIterator["asyncio.Queue[Fence]"]:
    """What the node at ``address`` fences after ``version``."""
    seen: asyncio.Queue[Fence] = asyncio.Queue()
    async with Dial(address).channel() as channel:
        call = cluster_pb2_grpc.MetadataServiceStub(channel).Watch(cluster_pb2.WatchRequest(version=version))
        task = asyncio.get_running_loop().create_task(_note(call, seen))
        try:
            yield seen
        finally:
            call.cancel()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await task


async def _note(call: Any, seen: "asyncio.Queue[Fence]") -> None:
    async for response in call:
        # Before it is parsed: that is the watcher's time, not the quorum's.
        now = time.perf_counter()
        for watched in response.entries:
            for change in metadata_pb2.MetadataEntry.FromString(watched.entry).changes:
                if change.HasField("fence_broker"):
                    partitions = change.fence_broker.partitions
                    leaderless = sum(not each.HasField("leader") for each in partitions)
                    seen.put_nowait(Fence(now, change.fence_broker.broker_id, len(partitions), leaderless))
