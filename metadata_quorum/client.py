"""The quorum as its users see it: finds the controller, follows hints, repeats what is safe to repeat, watches.

For brokers, the command line and tests; the Python SDK talks to brokers instead.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Self, TypeVar

import grpc
import grpc.aio

from lograft.contract.errors import (
    LogError,
    MetadataOutcomeUnknown,
    NotController,
    Outcome,
    QuorumUnavailable,
    from_detail,
)
from lograft.metadata_quorum.channels import Dial, Tls
from lograft.metadata_quorum.core.apply import apply_entry, skip_entry, unsupported
from lograft.metadata_quorum.core.model import ClusterState
from lograft.metadata_quorum.core.snapshot import SnapshotLoader
from lograft.metadata_quorum.errors_over_grpc import error_of
from lograft.metadata_quorum.operation_stream import OperationStream
from lograft.v1 import cluster_pb2, cluster_pb2_grpc, metadata_pb2, quorum_pb2, quorum_pb2_grpc

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.3
_ATTEMPT_TIMEOUT_S = 3.0
_CONNECT_TIMEOUT_S = 1.0
COMMAND_ID_BYTES = 16


class QuorumClient:
    """Talks to a quorum. ``addresses`` are some of its nodes: a list, or by name, which then also serves for hints."""

    def __init__(
        self, addresses: Sequence[str] | Mapping[str, str], *, tls: Tls | None = None, timeout_s: float = 10.0
    ) -> None:
        self._by_name = dict(addresses) if isinstance(addresses, Mapping) else {}
        self._addresses = list(addresses.values()) if isinstance(addresses, Mapping) else list(addresses)
        self._tls = tls
        self._timeout_s = timeout_s
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stream: OperationStream | None = None
        self._controller = self._addresses[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all channels."""
        if self._stream is not None:
            await self._stream.close()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Dial(address, self._tls).channel()
        return channel

    def _stream_on(self, channel: grpc.aio.Channel) -> OperationStream:
        """The one stream that carries all operations in flight; a new one if it broke or the controller moved."""
        if self._stream is None or self._stream.channel is not channel or self._stream.broken:
            if self._stream is not None:
                self._stream.abandon()
            self._stream = OperationStream(channel)
        return self._stream

    # Operations

    async def execute(self, *operations: cluster_pb2.Operation) -> list[metadata_pb2.Applied | LogError]:
        """Do operations at the controller, wherever it is; a result or an error for each.

        Each gets a command id, if it has none, so a repeat after an unknown outcome is answered with the first result.
        """
        for operation in operations:
            operation.command_id = operation.command_id or os.urandom(COMMAND_ID_BYTES)
        results: list[metadata_pb2.Applied | LogError | None] = [None] * len(operations)

        async def attempt(channel: grpc.aio.Channel, timeout_s: float) -> None:
            left = [number for number, result in enumerate(results) if _may_repeat(result)]
            stream = self._stream_on(channel)
            answers = [stream.submit(operations[number]) for number in left]
            try:
                async with asyncio.timeout(timeout_s):
                    answered = await asyncio.gather(*answers)
            except TimeoutError:
                raise MetadataOutcomeUnknown(int(timeout_s * 1000)) from None
            again: LogError | None = None
            for number, result in zip(left, answered, strict=True):
                results[number] = result.applied if result.HasField("applied") else from_detail(result.error)
                repeatable = _repeatable(results[number])
                if again is None or (repeatable is not None and repeatable.outcome is Outcome.UNKNOWN):
                    again = repeatable
            if again is not None:
                raise again

        try:
            await self.at_controller(attempt)
        except LogError as error:
            if isinstance(error, MetadataOutcomeUnknown | NotController | QuorumUnavailable):
                return [error if _may_repeat(result) else result for result in results]  # type: ignore[misc]
            raise
        return [result for result in results if result is not None]

    async def do(self, operation: cluster_pb2.Operation) -> metadata_pb2.Applied:
        """Do one operation; raises its error."""
        result = (await self.execute(operation))[0]
        if isinstance(result, LogError):
            raise result
        return result

    async def at_controller(self, attempt: Callable[[grpc.aio.Channel, float], Awaitable[_T]]) -> _T:
        """Call ``attempt`` with a channel to the controller, again and again until it answers or time is up.

        Whatever is attempted must be safe to repeat.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        pause = _FIRST_PAUSE_S
        unknown = False
        problem = "no node answered"
        while (left := deadline - loop.time()) > 0:
            channel = self._channel(self._controller)
            try:
                if await _is_connected(channel, min(left, _CONNECT_TIMEOUT_S)):
                    return await attempt(channel, min(left, _ATTEMPT_TIMEOUT_S))
                problem = f"{self._controller}: cannot be reached"
                self._try_another()
            except grpc.aio.AioRpcError as error:
                told = error_of(error)
                if told is None:
                    # The connection was there: whatever broke may have broken after the request was done.
                    unknown = True
                    problem = f"{self._controller}: {error.code().name.lower()}: {error.details()}"
                    self._try_another()
                elif not self._may_go_on(told):
                    raise told from None
                else:
                    unknown = unknown or told.outcome is Outcome.UNKNOWN
                    problem = str(told)
            except LogError as told:
                if not self._may_go_on(told):
                    raise
                unknown = unknown or told.outcome is Outcome.UNKNOWN
                problem = str(told)
            await asyncio.sleep(min(pause * random.uniform(0.5, 1.0), max(left, 0)))  # noqa: S311 - no secret
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        if unknown:
            raise MetadataOutcomeUnknown(int(self._timeout_s * 1000))
        raise QuorumUnavailable(problem)

    def _may_go_on(self, error: LogError) -> bool:
        if isinstance(error, NotController):
            hint = self._by_name.get(error.controller_hint or "") or error.address_hint
            if hint is not None and hint != self._controller:
                self._controller = hint
            else:
                self._try_another()
            return True
        if isinstance(error, QuorumUnavailable):
            self._try_another()
            return True
        if isinstance(error, MetadataOutcomeUnknown):
            # It may be a process that stands still and whose connections live on: only another node can know better.
            self._try_another()
            return True
        return False

    def _try_another(self) -> None:
        others = [address for address in self._addresses if address != self._controller]
        self._controller = random.choice(others or self._addresses)  # noqa: S311 - no secret

    # The quorum itself

    async def status(self, address: str) -> quorum_pb2.StatusResponse:
        """What the node at ``address`` believes. Raises `QuorumUnavailable` if it does not answer."""
        try:
            stub = quorum_pb2_grpc.QuorumServiceStub(self._channel(address))
            timeout_s = min(self._timeout_s, _ATTEMPT_TIMEOUT_S)
            status: quorum_pb2.StatusResponse = await stub.Status(quorum_pb2.StatusRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise error_of(error) or QuorumUnavailable(f"{address}: {error.code().name.lower()}") from None
        return status

    async def transfer(self, to: str = "") -> str:
        """Hand the leadership to another node; returns who leads."""

        async def attempt(channel: grpc.aio.Channel, _: float) -> str:
            stub = quorum_pb2_grpc.QuorumServiceStub(channel)
            response: quorum_pb2.TransferResponse = await stub.Transfer(
                quorum_pb2.TransferRequest(to=to), timeout=self._timeout_s
            )
            return response.leader

        return await self.at_controller(attempt)

    async def add_member(self, name: str, address: str) -> list[metadata_pb2.QuorumMember]:
        """Add a voter."""

        async def attempt(channel: grpc.aio.Channel, _: float) -> list[metadata_pb2.QuorumMember]:
            stub = quorum_pb2_grpc.QuorumServiceStub(channel)
            request = quorum_pb2.AddMemberRequest(name=name, address=address)
            return list((await stub.AddMember(request, timeout=self._timeout_s)).members)

        return await self.at_controller(attempt)

    async def remove_member(self, name: str) -> list[metadata_pb2.QuorumMember]:
        """Remove a voter."""

        async def attempt(channel: grpc.aio.Channel, _: float) -> list[metadata_pb2.QuorumMember]:
            stub = quorum_pb2_grpc.QuorumServiceStub(channel)
            request = quorum_pb2.RemoveMemberRequest(name=name)
            return list((await stub.RemoveMember(request, timeout=self._timeout_s)).members)

        return await self.at_controller(attempt)

    # Watching

    async def watch(self, follower: "StateFollower", address: str | None = None) -> AsyncIterator[int]:
        """Bring ``follower`` up to date and keep it so; yields the node's version after every message.

        Ends with the error of the stream; call it again, with any node, to go on from where the follower is.
        """
        request = cluster_pb2.WatchRequest(version=follower.state.version, cluster_id=follower.state.cluster_id)
        stub = cluster_pb2_grpc.MetadataServiceStub(self._channel(address or self._addresses[0]))
        follower.begin()
        call = stub.Watch(request)
        try:
            async for response in call:
                follower.take(response)
                yield response.version
        except grpc.aio.AioRpcError as error:
            raise error_of(error) or QuorumUnavailable(f"{address}: {error.code().name.lower()}") from None
        finally:
            call.cancel()


class StateFollower:
    """A copy of the cluster's state, kept by the same `apply` as the quorum's own. Never goes back in version."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self._loader: SnapshotLoader | None = None

    def begin(self) -> None:
        """A new stream: half a snapshot of the former one is worth nothing."""
        self._loader = None

    def take(self, response: cluster_pb2.WatchResponse) -> None:
        """Take in one message. Raises `UnsupportedVersion` for what this release cannot apply."""
        for piece in response.snapshot_pieces:
            self._loader = self._loader or SnapshotLoader()
            self._loader.add(piece)
            if self._loader.complete:
                state, self._loader = self._loader.finish(), None
                if state.version > self.state.version:
                    self.state = state
        for watched in response.entries:
            if watched.version <= self.state.version:
                continue
            if not watched.entry:
                skip_entry(self.state, version=watched.version, term=watched.term)
                continue
            entry = metadata_pb2.MetadataEntry.FromString(watched.entry)
            too_new = unsupported(entry)
            if too_new is not None:
                raise too_new
            apply_entry(self.state, entry, version=watched.version, term=watched.term)


async def _is_connected(channel: grpc.aio.Channel, timeout_s: float) -> bool:
    """Whether a call can be sent at all. If not, it was certainly not done."""
    try:
        async with asyncio.timeout(timeout_s):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                    return False
                await channel.wait_for_state_change(state)
    except TimeoutError:
        return False
    return True


def _may_repeat(result: metadata_pb2.Applied | LogError | None) -> bool:
    return result is None or _repeatable(result) is not None


def _repeatable(result: metadata_pb2.Applied | LogError | None) -> LogError | None:
    return result if isinstance(result, NotController | MetadataOutcomeUnknown | QuorumUnavailable) else None
