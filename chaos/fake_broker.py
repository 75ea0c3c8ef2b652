"""A broker as the controller sees it: registration, heartbeats and a view of the metadata, without any records.

For tests and benchmarks of the quorum. It does what a broker must do: it looks for the controller when its stream ends
or falls silent, goes on with the version it has, and never takes part under an epoch that is over.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Self
from uuid import uuid4

import grpc.aio

from lograft.chaos.quorum_cluster import QuorumCluster, watching
from lograft.contract.errors import LogError, NotController, QuorumUnavailable
from lograft.metadata_quorum.channels import Dial
from lograft.metadata_quorum.client import StateFollower
from lograft.metadata_quorum.errors_over_grpc import error_of
from lograft.v1 import cluster_pb2, cluster_pb2_grpc, metadata_pb2

_INTERVAL_S = 0.1
# Silence for so long, and it looks for another controller.
_PATIENCE_S = 0.7


class FakeBroker:
    """One incarnation of a broker. `kill` ends it as a crash would."""

    def __init__(
        self, cluster: QuorumCluster, broker_id: int, *, directory_id: str = "", rack: str = "", ready: bool = True
    ) -> None:
        self.broker_id = broker_id
        self.directory_id = directory_id or uuid4().hex
        self.rack = rack
        self.ready = ready
        # While this is set it says nothing, and keeps its stream.
        self.silent = False
        self.epoch = 0
        self.follower = StateFollower()
        # The newest answer, and what ended the session for good: another incarnation, for instance.
        self.answer: cluster_pb2.HeartbeatResponse | None = None
        self.error: LogError | None = None
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self, *, clean_stop_epoch: int | None = None) -> Self:
        """Register, and keep a session from now on."""
        registration = cluster_pb2.RegisterBrokerOperation(
            broker_id=self.broker_id,
            incarnation_id=uuid4().hex,
            directory_id=self.directory_id,
            endpoints=[metadata_pb2.Endpoint(name="client", host="127.0.0.1", port=9_000 + self.broker_id)],
            rack=self.rack,
            clean_stop_epoch=clean_stop_epoch,
        )
        async with self._cluster.client() as client:
            self.epoch = (await client.do(cluster_pb2.Operation(register_broker=registration))).number
        self.error = None
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_session()), loop.create_task(self._watch())]
        return self

    async def kill(self) -> None:
        """Break the stream."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _keep_session(self) -> None:
        addresses = list(self._cluster.addresses.values())
        address = addresses[0]
        while self.error is None:
            try:
                await self._session(address)
            except grpc.aio.AioRpcError as error:
                told = error_of(error)
                if isinstance(told, NotController) and told.address_hint:
                    address = told.address_hint
                elif told is None or isinstance(told, NotController | QuorumUnavailable):
                    address = addresses[(addresses.index(address) + 1) % len(addresses)]
                else:
                    self.error = told
            except TimeoutError:
                address = addresses[(addresses.index(address) + 1) % len(addresses)]
            await asyncio.sleep(0.02)

    async def _session(self, address: str) -> None:
        async with Dial(address).channel() as channel:
            call = cluster_pb2_grpc.ControllerServiceStub(channel).Heartbeat(self._beats())
            try:
                while True:
                    # Not `wait_for`, which before Python 3.12 may swallow a cancellation.
                    async with asyncio.timeout(None if self.silent else _PATIENCE_S):
                        answer = await call.read()
                    if answer is grpc.aio.EOF:
                        return
                    self.answer = answer
            finally:
                call.cancel()

    async def _beats(self) -> AsyncIterator[cluster_pb2.HeartbeatRequest]:
        while True:
            if not self.silent:
                yield cluster_pb2.HeartbeatRequest(
                    broker_id=self.broker_id,
                    broker_epoch=self.epoch,
                    version=self.follower.state.version,
                    ready=self.ready,
                )
            await asyncio.sleep(_INTERVAL_S)

    async def _watch(self) -> None:
        number = self.broker_id
        async with self._cluster.client() as client:
            while True:
                addresses = list(self._cluster.addresses.values())
                with suppress(LogError):
                    async with watching(client, self.follower, addresses[number % len(addresses)]) as stream:
                        async for _ in stream:
                            pass
                number += 1
                await asyncio.sleep(0.02)
