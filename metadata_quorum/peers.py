"""Raft messages between quorum nodes, over gRPC: one stream per direction.

A node sends on the stream that it opened itself and receives on those that others opened, so any direction can fail
alone, and the address to dial may be a proxy. A message that cannot be sent is dropped: Raft sends again what matters.
"""

import asyncio
import logging
from collections.abc import Callable

import grpc
import grpc.aio

from lograft.metadata_quorum.channels import Dial
from lograft.v1 import quorum_pb2, quorum_pb2_grpc

_logger = logging.getLogger(__name__)
_RETRY_S = 0.1
# A node that takes nothing for so long is dropped rather than buffered for.
_MAX_WAITING_BYTES = 256 << 20
_ACCEPT_TIMEOUT_S = 2.0


class PeerLink:
    """The stream on which this node sends to one other."""

    def __init__(
        self,
        me: str,
        peer: str,
        dial: Dial,
        *,
        on_connected: Callable[[str], None],
        on_disconnected: Callable[[str], None],
    ) -> None:
        self._me = me
        self.peer = peer
        self._dial = dial
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self.connected = False
        # What the other node said when it refused us.
        self.refusal = ""
        self._waiting: list[quorum_pb2.ExchangeRequest] = []
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, message: quorum_pb2.ExchangeRequest) -> None:
        """Send, if the stream is open."""
        if not self.connected:
            return
        size = message.ByteSize()
        if self._waiting_bytes + size > _MAX_WAITING_BYTES:
            return
        self._waiting.append(message)
        self._waiting_bytes += size
        self._news.set()

    async def close(self) -> None:
        """Close the stream."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._stream()
            except grpc.aio.AioRpcError as error:
                self._note_refusal(error)
            except (TimeoutError, OSError, asyncio.InvalidStateError):
                pass  # the last one is what grpc says when a call to write to has ended
            finally:
                self._waiting, self._waiting_bytes = [], 0
                if self.connected:
                    self.connected = False
                    self._on_disconnected(self.peer)
            await asyncio.sleep(_RETRY_S)

    async def _stream(self) -> None:
        async with self._dial.channel() as channel:
            call = quorum_pb2_grpc.QuorumPeerServiceStub(channel).Exchange()
            try:
                await call.write(quorum_pb2.ExchangeRequest(sender=self._me, receiver=self.peer))
                # Not `wait_for`, which before Python 3.12 may swallow the cancellation of `close`.
                async with asyncio.timeout(_ACCEPT_TIMEOUT_S):
                    accepted = await call.read()
                if accepted is grpc.aio.EOF:
                    await call.code()  # raises what the other node said
                    return
                self.connected, self.refusal = True, ""
                self._on_connected(self.peer)
                watcher = asyncio.ensure_future(call.read())
                watcher.add_done_callback(lambda _: self._news.set())
                try:
                    while not watcher.done():
                        await self._news.wait()
                        self._news.clear()
                        messages, self._waiting, self._waiting_bytes = self._waiting, [], 0
                        for message in messages:
                            await call.write(message)
                finally:
                    watcher.cancel()
                    await asyncio.gather(watcher, return_exceptions=True)
            finally:
                call.cancel()

    def _note_refusal(self, error: grpc.aio.AioRpcError) -> None:
        refused = error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED)
        refusal = (error.details() or "") if refused else ""
        if refusal and refusal != self.refusal:
            _logger.warning("%s takes no messages from this node: %s", self.peer, refusal)
        self.refusal = refusal
