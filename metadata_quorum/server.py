"""One quorum process: its directory, its gRPC server, the Raft node, the links to others, the controller."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lograft.contract.disk import Disk
from lograft.contract.errors import DirectoryUnusable, LogError, NotController, QuorumUnavailable
from lograft.metadata_quorum.channels import SERVER_OPTIONS, Dial, Tls
from lograft.metadata_quorum.config import QuorumConfig
from lograft.metadata_quorum.controller import Controller
from lograft.metadata_quorum.core.model import FEATURE_LEVEL, Member
from lograft.metadata_quorum.errors_over_grpc import ErrorInterceptor
from lograft.metadata_quorum.identity import Identity, first_quorum, members_to_proto
from lograft.metadata_quorum.peers import PeerLink
from lograft.metadata_quorum.raft_machine import raft_id
from lograft.metadata_quorum.raft_node import RaftNode
from lograft.metadata_quorum.services import ControllerService, MetadataService, QuorumPeerService, QuorumService
from lograft.v1 import cluster_pb2, cluster_pb2_grpc, quorum_pb2, quorum_pb2_grpc

_logger = logging.getLogger(__name__)
_HELLO_RETRY_S = 0.1
_HELLO_TIMEOUT_S = 1.0
_SERVICES = (
    *(service.full_name for service in cluster_pb2.DESCRIPTOR.services_by_name.values()),
    *(service.full_name for service in quorum_pb2.DESCRIPTOR.services_by_name.values()),
)


class QuorumServer:
    """A running quorum node. Made by `running`."""

    def __init__(self, config: QuorumConfig, identity: Identity, disk: Disk) -> None:
        self.config = config
        self.tls: Tls | None = config.tls
        self._identity = identity
        self._disk = disk
        self.me = Member(identity.name, identity.directory_id, config.advertised_address)
        self._node: RaftNode | None = None
        self._controller: Controller | None = None
        self._links: dict[str, PeerLink] = {}
        self._linked: tuple[Member, ...] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._waiting_for = "starting"
        self.joining: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told_version = 0
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=SERVER_OPTIONS)
        self.port = 0

    # Life

    async def start_serving(self) -> None:
        """Listen. Until the node belongs to a quorum it answers only who it is."""
        server = self._server
        cluster_pb2_grpc.add_ControllerServiceServicer_to_server(ControllerService(self), server)
        cluster_pb2_grpc.add_MetadataServiceServicer_to_server(MetadataService(self), server)
        quorum_pb2_grpc.add_QuorumServiceServicer_to_server(QuorumService(self), server)
        quorum_pb2_grpc.add_QuorumPeerServiceServicer_to_server(QuorumPeerService(self), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*_SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME), server
        )
        try:
            if self.tls is None:
                self.port = server.add_insecure_port(self.config.listen)
            else:
                self.port = server.add_secure_port(self.config.listen, self.tls.server_credentials())
        except RuntimeError:
            raise DirectoryUnusable(
                self.config.listen, "the address cannot be listened on: is it taken, or not of this machine?"
            ) from None
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await server.start()

    async def join(self) -> None:
        """Find the quorum that this node belongs to, and take part in it."""
        members = self._identity.first_members
        if not members:
            members = await self._agree_on_first_members()
            if members:
                self._identity.remember(members)
        self._waiting_for = ""
        node = RaftNode(
            self.me,
            members,
            self._identity.directory,
            disk=self._disk,
            send=self._send,
            timing=self.config.timing,
            limits=self.config.snapshots,
        )
        self._node = node
        node.on_step.append(self._after_step)
        self._controller = Controller(node, timeout_ms=self.config.request_timeout_ms)
        self._follow_members()
        node.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def _agree_on_first_members(self) -> tuple[Member, ...]:
        """Ask around until it is clear who votes; nothing, if this node has to be added to a quorum first."""
        configured = self.config.peers
        while True:
            answers = await asyncio.gather(*(self._ask(name) for name in configured if name != self.me.name))
            heard = {answer.name: answer for answer in answers if answer is not None}
            outcome = first_quorum(self.me, self.config.members, heard)
            if not isinstance(outcome, str):
                return outcome
            if outcome != self._waiting_for:
                self._waiting_for = outcome
                _logger.info("%s", outcome)
            if any(answer.members for answer in heard.values()) or self.me.name not in configured:
                return ()  # runs along without a vote until it is added
            await asyncio.sleep(_HELLO_RETRY_S)

    async def _ask(self, name: str) -> quorum_pb2.HelloResponse | None:
        request = quorum_pb2.HelloRequest(name=self.me.name, directory_id=self.me.directory_id)
        try:
            async with self._dial(name, self.config.peers[name]).channel() as channel:
                stub = quorum_pb2_grpc.QuorumPeerServiceStub(channel)
                answer: quorum_pb2.HelloResponse = await stub.Hello(request, timeout=_HELLO_TIMEOUT_S)
                return answer
        except grpc.aio.AioRpcError:
            return None

    async def stop(self) -> None:
        """End. Others notice at once that our connections are closed, and elect somebody if we led."""
        if self._controller is not None:
            self._controller.close()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(0.1)
        await asyncio.gather(*(link.close() for link in self._links.values()))
        if self._node is not None:
            await self._node.close()
        self._identity.release()

    async def failed(self) -> LogError:
        """Wait until the node must end."""
        try:
            await asyncio.shield(self.joining)
        except LogError as error:  # a damaged journal or snapshot
            return error
        return await asyncio.shield(self.running_node().failure)

    async def _set_health(self, status: "health_pb2.HealthCheckResponse.ServingStatus.ValueType") -> None:
        for service in ("", *_SERVICES):
            await self._health.set(service, status)

    # Links

    def _dial(self, name: str, address: str) -> Dial:
        return Dial(self.config.peers.get(name, address), self.tls)

    def _follow_members(self) -> None:
        """Keep a link to every other voter."""
        node = self.running_node()
        wanted = {raft_id(m): m for m in node.machine.members if m.directory_id != self.me.directory_id}
        self._linked = node.machine.members
        for peer in [peer for peer in self._links if wanted and peer not in wanted]:
            self._closing = asyncio.ensure_future(self._links.pop(peer).close())
        for peer, member in wanted.items():
            if peer not in self._links:
                self._links[peer] = PeerLink(
                    raft_id(self.me),
                    peer,
                    self._dial(member.name, member.address),
                    on_connected=self._connected,
                    on_disconnected=self._disconnected,
                )

    def _connected(self, peer: str) -> None:
        node = self.running_node()
        node.machine.connected(peer)
        node.wake()

    def _disconnected(self, peer: str) -> None:
        self.running_node().machine.disconnected(peer)

    def _send(self, peer: str, message: quorum_pb2.ExchangeRequest) -> None:
        link = self._links.get(peer)
        if link is None and peer not in {raft_id(m) for m in self.running_node().machine.members}:
            # A node that has to be added, or a leader that we do not know as a member yet: answer where it came from.
            link = self._link_to_stranger(peer)
        if link is not None:
            link.send(message)

    def _link_to_stranger(self, peer: str) -> PeerLink | None:
        name = peer.partition(":")[0]
        address = self.config.peers.get(name)
        if address is None:
            return None
        self._links[peer] = PeerLink(
            raft_id(self.me),
            peer,
            self._dial(name, address),
            on_connected=self._connected,
            on_disconnected=self._disconnected,
        )
        return self._links[peer]

    def is_connected(self, peer: str) -> bool:
        """Whether messages to the node arrive."""
        link = self._links.get(peer)
        return link is not None and link.connected

    def may_send(self, peer: str) -> bool:
        """Whether messages of this node are taken: voters, and whoever leads the voters."""
        name = peer.partition(":")[0]
        node = self.running_node()
        same_name = [m for m in node.machine.members if m.name == name]
        # A name that we know with another directory is a node that was wiped; one that we do not know may be new.
        return not same_name or raft_id(same_name[0]) == peer

    # What services ask

    def running_node(self) -> RaftNode:
        """The Raft node; raises `QuorumUnavailable` while this process does not take part in a quorum."""
        if self._node is None:
            raise QuorumUnavailable(f"{self.me.name} is {self._waiting_for}")
        return self._node

    def controller(self) -> Controller:
        """The controller of this node, active or not."""
        if self._controller is None:
            raise NotController(self.me.name)
        return self._controller

    def active_controller(self) -> Controller:
        """The controller, if it is here; raises `NotController` with a hint otherwise."""
        controller = self.controller()
        if not controller.active:
            raise controller.not_controller()
        return controller

    def hello(self) -> quorum_pb2.HelloResponse:
        """Who is here."""
        members = self._identity.first_members
        cluster_id = ""
        if self._node is not None:
            members, cluster_id = self._node.machine.members, self._node.state.cluster_id
        return quorum_pb2.HelloResponse(
            name=self.me.name,
            directory_id=self.me.directory_id,
            cluster_id=cluster_id,
            members=members_to_proto(members),
        )

    def status(self) -> quorum_pb2.StatusResponse:
        """What this node believes."""
        response = quorum_pb2.StatusResponse(
            node=self.me.name, directory_id=self.me.directory_id, feature_level=FEATURE_LEVEL
        )
        node = self._node
        if node is None:
            response.state, response.problem = "waiting", self._waiting_for
            return response
        machine = node.machine
        response.cluster_id = node.state.cluster_id
        response.leader = (machine.leader or "").partition(":")[0]
        response.term, response.commit_index, response.applied_index = (
            machine.term,
            machine.commit_index,
            machine.applied_index,
        )
        response.last_index, response.first_index = node.journal.last_index, node.journal.first_index
        response.members.extend(members_to_proto(machine.members))
        response.controller = self._controller is not None and self._controller.active
        response.controller_epoch = node.state.controller_epoch
        response.journal_bytes, response.snapshot_version = node.journal.size, node.snapshot_version
        response.state, response.problem = self._state_in_words()
        if machine.leading:
            for member in machine.members:
                if member != machine.me and member.directory_id != self.me.directory_id:
                    peer = raft_id(member)
                    response.peers.add(
                        name=member.name, match_index=machine.match_index(peer), connected=self.is_connected(peer)
                    )
        return response

    def _state_in_words(self) -> tuple[str, str]:
        node = self.running_node()
        refusals = [link.refusal for link in self._links.values() if link.refusal]
        if node.problem:
            return "standing still", node.problem
        if not node.machine.is_member:
            return "not a member", f"not a voter of the quorum (lograft quorum add {self.me.name})"
        if node.machine.leading:
            return "leading", ""
        if node.machine.electing or node.machine.leader is None:
            return "electing", refusals[0] if refusals else "no leader is known: a majority of the nodes is needed"
        return "following", refusals[0] if refusals else ""

    # News for watchers

    def _after_step(self) -> None:
        node = self.running_node()
        if node.machine.members is not self._linked:
            self._follow_members()
            if node.machine.is_member and not self._identity.first_members:
                self._identity.remember(node.machine.members)
        if node.state.version != self._told_version:
            self._told_version = node.state.version
            if not self._news.done():
                self._news.set_result(None)
            self._news = asyncio.get_running_loop().create_future()

    async def news(self, timeout_s: float) -> None:
        """Wait until something was applied, or for so long."""
        news = self._news
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(news)


@asynccontextmanager
async def running(config: QuorumConfig, disk: Disk | None = None) -> AsyncIterator[QuorumServer]:
    """A quorum node that serves; it joins its quorum in the background as soon as it can."""
    disk = disk or Disk()
    identity = Identity(config.directory, config.name, disk)
    server = QuorumServer(config, identity, disk)
    try:
        await server.start_serving()
        server.joining = asyncio.ensure_future(server.join())
        if identity.first_members:
            # Nothing to wait for: whoever reads that we are ready may rely on our files being whole.
            await server.joining
        yield server
    finally:
        server.joining.cancel()
        await asyncio.gather(server.joining, return_exceptions=True)
        await server.stop()
