"""The gRPC services that clients, brokers and operators use. They translate; the controller and the node act."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc.aio

from lograft.contract.errors import (
    FencedEpoch,
    InvalidRequest,
    LogError,
    MembershipRefused,
    QuorumUnavailable,
    UnknownBroker,
    WrongCluster,
)
from lograft.metadata_quorum.channels import Dial
from lograft.metadata_quorum.controller import now_ms
from lograft.metadata_quorum.core import drains, moves
from lograft.metadata_quorum.core.config_keys import cluster_int
from lograft.metadata_quorum.core.model import Credential, Member
from lograft.metadata_quorum.core.snapshot import StateCopy, capture, encode_pieces
from lograft.metadata_quorum.identity import members_to_proto
from lograft.metadata_quorum.journal import NO_OP
from lograft.metadata_quorum.raft_machine import raft_id
from lograft.v1 import cluster_pb2, cluster_pb2_grpc, metadata_pb2, quorum_pb2, quorum_pb2_grpc

if TYPE_CHECKING:
    from lograft.metadata_quorum.server import QuorumServer

Context = grpc.aio.ServicerContext[Any, Any]
_MAX_OPERATIONS = 10_000
_WATCH_BATCH_BYTES = 1 << 20
_WATCH_SIGN_OF_LIFE_S = 1.0
_HELLO_TIMEOUT_S = 2.0
_HEARTBEATS_PER_SESSION = 5
# scrypt's cost: 16 MB and some 50 ms for each guess at a password.
_SCRYPT = {"n": 1 << 14, "r": 8, "p": 1}


class ControllerService(cluster_pb2_grpc.ControllerServiceServicer):
    """Changes to the metadata, and the sessions of brokers."""

    def __init__(self, server: "QuorumServer") -> None:
        self._server = server

    async def Execute(self, request: cluster_pb2.ExecuteRequest, _: Context) -> cluster_pb2.ExecuteResponse:
        """Do some operations and wait for all of them."""
        controller = self._server.active_controller()
        if len(request.operations) > _MAX_OPERATIONS:
            raise InvalidRequest(f"{len(request.operations)} operations in one call: {_MAX_OPERATIONS} at most")
        results: list[metadata_pb2.ChangeResult | None] = [None] * len(request.operations)
        missing = len(results)
        done = asyncio.get_running_loop().create_future()

        def take(number: int, result: metadata_pb2.ChangeResult) -> None:
            nonlocal missing
            results[number] = result
            missing -= 1
            if not missing and not done.done():
                done.set_result(None)

        for number, operation in enumerate(request.operations):
            credential = await _credential(operation)
            controller.submit(operation, partial(take, number), credential)
        if missing:
            await done
        return cluster_pb2.ExecuteResponse(results=[_operation_result(result) for result in results if result])

    async def Submit(
        self, requests: AsyncIterator[cluster_pb2.SubmitRequest], _: Context
    ) -> AsyncIterator[cluster_pb2.SubmitResponse]:
        """Do operations as they come, and answer them as they are committed."""
        ready: list[cluster_pb2.NumberedResult] = []
        news = asyncio.Event()
        in_flight = 0
        ended = False

        def take(number: int, result: metadata_pb2.ChangeResult) -> None:
            nonlocal in_flight
            in_flight -= 1
            ready.append(cluster_pb2.NumberedResult(number=number, result=_operation_result(result)))
            news.set()

        async def read() -> None:
            nonlocal in_flight, ended
            try:
                async for request in requests:
                    controller = self._server.active_controller()
                    in_flight += len(request.operations)
                    for item in request.operations:
                        credential = await _credential(item.operation)
                        controller.submit(item.operation, partial(take, item.number), credential)
            finally:
                ended = True
                news.set()

        reader = asyncio.ensure_future(read())
        try:
            while not (ended and not in_flight and not ready):
                await news.wait()
                news.clear()
                if ready:
                    batch, ready = ready, []
                    yield cluster_pb2.SubmitResponse(results=batch)
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def Heartbeat(
        self, requests: AsyncIterator[cluster_pb2.HeartbeatRequest], _: Context
    ) -> AsyncIterator[cluster_pb2.HeartbeatResponse]:
        """Keep the session of one broker."""
        node, controller = self._server.running_node(), self._server.controller()
        session: tuple[int, int] | None = None
        epoch = 0
        try:
            # Refused after the first message is read, not before: a caller that is still writing would not learn why.
            async for request in requests:
                self._server.active_controller()
                broker = node.state.brokers.get(request.broker_id)
                if broker is None:
                    raise UnknownBroker(request.broker_id)
                if broker.broker_epoch != request.broker_epoch:
                    raise FencedEpoch(f"broker {request.broker_id}", request.broker_epoch, broker.broker_epoch)
                if session is None or epoch != controller.epoch:
                    # Anew also if this node led, lost it and leads again: its sessions were forgotten meanwhile.
                    session, epoch = (request.broker_id, request.broker_epoch), controller.epoch
                    controller.sessions.opened(*session, now_ms())
                elif session[0] != request.broker_id:
                    raise InvalidRequest("a heartbeat stream belongs to one broker")
                controller.sessions.heartbeat(*session, request.version, request.ready, now_ms())
                if broker.fenced:
                    controller.unfence_ready()
                timeout_ms = cluster_int(node.state, "broker.session.timeout.ms")
                yield cluster_pb2.HeartbeatResponse(
                    version=node.state.version,
                    controller_epoch=controller.epoch,
                    fenced=broker.fenced,
                    interval_ms=max(timeout_ms // _HEARTBEATS_PER_SESSION, 10),
                    session_timeout_ms=timeout_ms,
                )
        finally:
            if session is not None and epoch == controller.epoch:
                controller.sessions.disconnected(*session, now_ms())
                controller.session_broken()

    async def ListMoves(self, request: cluster_pb2.ListMovesRequest, _: Context) -> cluster_pb2.ListMovesResponse:
        """Moves in progress."""
        self._server.active_controller()
        found = moves.list_moves(self._server.running_node().state, request.topic)
        return cluster_pb2.ListMovesResponse(moves=found)

    async def DescribeDrain(
        self, request: cluster_pb2.DescribeDrainRequest, _: Context
    ) -> cluster_pb2.DescribeDrainResponse:
        """How far the draining of a broker is."""
        self._server.active_controller()
        answer = drains.describe_drain(self._server.running_node().state, request.broker_id)
        if isinstance(answer, LogError):
            raise answer
        return answer


class MetadataService(cluster_pb2_grpc.MetadataServiceServicer):
    """The metadata as it is committed."""

    def __init__(self, server: "QuorumServer") -> None:
        self._server = server

    async def Watch(self, request: cluster_pb2.WatchRequest, _: Context) -> AsyncIterator[cluster_pb2.WatchResponse]:
        """A snapshot if need be, then every entry."""
        node = self._server.running_node()
        await self._wait_for_cluster_id()
        cluster_id = node.state.cluster_id
        if request.cluster_id and request.cluster_id != cluster_id:
            raise WrongCluster(cluster_id, request.cluster_id)
        version = request.version
        while True:
            # A watcher that is ahead of this node waits here: it must never go back.
            if version < node.journal.first_index:
                copy = capture(node.state)
                for piece in await asyncio.to_thread(_all_pieces, copy):
                    yield cluster_pb2.WatchResponse(snapshot_pieces=[piece], cluster_id=cluster_id)
                version = copy.version
            response = cluster_pb2.WatchResponse(cluster_id=cluster_id)
            if version < node.state.version and version >= node.journal.first_index:
                size = 0
                for entry in node.journal.from_index(version + 1):
                    if entry.index > node.state.version or size >= _WATCH_BATCH_BYTES:
                        break
                    payload = b"" if entry.command[:1] == NO_OP else entry.command[1:]
                    response.entries.add(version=entry.index, term=entry.term, entry=payload)
                    size += len(payload) + 16
                    version = entry.index
            response.version = node.state.version
            yield response
            if version >= node.state.version:
                await self._server.news(_WATCH_SIGN_OF_LIFE_S)

    async def _wait_for_cluster_id(self) -> None:
        node = self._server.running_node()
        while not node.state.cluster_id:
            await self._server.news(_WATCH_SIGN_OF_LIFE_S)


class QuorumService(quorum_pb2_grpc.QuorumServiceServicer):
    """For operators."""

    def __init__(self, server: "QuorumServer") -> None:
        self._server = server
        self._changing = asyncio.Lock()

    async def Status(self, _request: quorum_pb2.StatusRequest, _: Context) -> quorum_pb2.StatusResponse:
        """What this node believes."""
        return self._server.status()

    async def Transfer(self, request: quorum_pb2.TransferRequest, _: Context) -> quorum_pb2.TransferResponse:
        """Hand the leadership over, and wait until somebody else leads."""
        node, controller = self._server.running_node(), self._server.active_controller()
        machine = node.machine
        if request.to == machine.me.name:
            return quorum_pb2.TransferResponse(leader=machine.me.name)
        others = [m for m in machine.members if m.name != machine.me.name]
        chosen = [m for m in others if request.to in ("", m.name)]
        if not chosen:
            raise MembershipRefused(
                f"leadership cannot go to {request.to!r}: the other members are "
                f"{', '.join(m.name for m in others) or 'none'}"
            )
        chosen.sort(key=lambda m: machine.match_index(raft_id(m)))
        target = chosen[-1]
        deadline = asyncio.get_running_loop().time() + controller.timeout_ms / 1000
        # Only a node that has everything can take over, and under load it lacks the newest entry all the time.
        async with controller.calm():
            while asyncio.get_running_loop().time() < deadline:
                if machine.transfer_to(raft_id(target)):
                    node.wake()
                await asyncio.sleep(0.02)
                leader = machine.leader
                if leader is not None and not machine.leading:
                    return quorum_pb2.TransferResponse(leader=leader.partition(":")[0])
        raise QuorumUnavailable(f"{target.name} did not take over in time; is it connected and up to date?")

    async def AddMember(self, request: quorum_pb2.AddMemberRequest, _: Context) -> quorum_pb2.AddMemberResponse:
        """Add an empty node that is running."""
        async with self._changing:
            node, controller = self._server.running_node(), self._server.active_controller()
            members = node.machine.members
            if any(m.name == request.name for m in members):
                raise MembershipRefused(f"{request.name} is a member already")
            hello = await self._hello(request.address)
            if hello.name != request.name:
                raise MembershipRefused(f"the node at {request.address} is {hello.name}, not {request.name}")
            if hello.cluster_id and hello.cluster_id != node.state.cluster_id:
                raise MembershipRefused(f"{request.name} belongs to cluster {hello.cluster_id}: empty its directory")
            if hello.members:
                raise MembershipRefused(
                    f"{request.name} was a member before: empty its directory, so that it begins as a new voter"
                )
            self._all_must_answer(members)
            await controller.change_members((*members, Member(request.name, hello.directory_id, request.address)))
            return quorum_pb2.AddMemberResponse(members=members_to_proto(node.machine.members))

    async def RemoveMember(
        self, request: quorum_pb2.RemoveMemberRequest, _: Context
    ) -> quorum_pb2.RemoveMemberResponse:
        """Remove a voter; a leader hands over first."""
        async with self._changing:
            node, controller = self._server.running_node(), self._server.active_controller()
            members = node.machine.members
            rest = tuple(m for m in members if m.name != request.name)
            if len(rest) == len(members):
                raise MembershipRefused(f"{request.name} is not a member")
            if not rest:
                raise MembershipRefused("the last member cannot be removed")
            if request.name == node.machine.me.name:
                await self.Transfer(quorum_pb2.TransferRequest(), _)
                raise controller.not_controller()
            self._all_must_answer(rest)
            await controller.change_members(rest)
            return quorum_pb2.RemoveMemberResponse(members=members_to_proto(node.machine.members))

    def _all_must_answer(self, members: tuple[Member, ...]) -> None:
        """A change of voters needs room for the next failure: refuse it while somebody is away."""
        node = self._server.running_node()
        away = [m.name for m in members if m.name != node.machine.me.name and not self._server.is_connected(raft_id(m))]
        if away and len(away) * 2 >= len(members):
            raise MembershipRefused(f"{', '.join(away)} cannot be reached: a majority would be missing")

    async def _hello(self, address: str) -> quorum_pb2.HelloResponse:
        node = self._server.running_node()
        try:
            async with Dial(address, self._server.tls).channel() as channel:
                answer: quorum_pb2.HelloResponse = await quorum_pb2_grpc.QuorumPeerServiceStub(channel).Hello(
                    quorum_pb2.HelloRequest(
                        name=node.machine.me.name,
                        directory_id=node.machine.me.directory_id,
                        cluster_id=node.state.cluster_id,
                    ),
                    timeout=_HELLO_TIMEOUT_S,
                )
                return answer
        except grpc.aio.AioRpcError as error:
            raise MembershipRefused(
                f"no quorum node answers at {address} ({error.code().name}): start it first"
            ) from None


class QuorumPeerService(quorum_pb2_grpc.QuorumPeerServiceServicer):
    """Between quorum nodes."""

    def __init__(self, server: "QuorumServer") -> None:
        self._server = server

    async def Hello(self, _request: quorum_pb2.HelloRequest, _: Context) -> quorum_pb2.HelloResponse:
        """Say who is here."""
        return self._server.hello()

    async def Exchange(
        self, requests: AsyncIterator[quorum_pb2.ExchangeRequest], _: Context
    ) -> AsyncIterator[quorum_pb2.ExchangeResponse]:
        """Take messages from another node."""
        first = await anext(aiter(requests), None)
        if first is None:
            return
        node = self._server.running_node()
        me = raft_id(node.machine.me)
        if first.receiver != me:
            raise MembershipRefused(f"the stream is meant for {first.receiver}, and this is {me}")
        if node.machine.members and node.machine.is_member and not self._server.may_send(first.sender):
            raise MembershipRefused(f"{first.sender} is not a member")
        yield quorum_pb2.ExchangeResponse()
        try:
            async for message in requests:
                node.receive(first.sender, message)
        finally:
            node.machine.leader_link_broken(first.sender)


async def _credential(operation: cluster_pb2.Operation) -> Credential | None:
    """A password as it is kept, for the one operation that brings one."""
    if operation.WhichOneof("kind") != "set_user":
        return None
    salt = os.urandom(16)
    password = operation.set_user.password.encode()
    digest = await asyncio.to_thread(hashlib.scrypt, password, salt=salt, maxmem=64 << 20, **_SCRYPT)
    return Credential("scrypt", salt, digest, **_SCRYPT)


def _operation_result(result: metadata_pb2.ChangeResult) -> cluster_pb2.OperationResult:
    if result.HasField("rejected"):
        return cluster_pb2.OperationResult(error=result.rejected)
    return cluster_pb2.OperationResult(applied=result.applied)


def _all_pieces(copy: StateCopy) -> list[bytes]:
    return list(encode_pieces(copy))
