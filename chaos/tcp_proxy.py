"""A TCP proxy for one directed link: it passes bytes, holds them back, or refuses connections.

Bytes that are held back are not lost: when the link heals they arrive late, as over a network whose TCP retransmits. So
a healed link delivers what was said before the cut, which is the harder case; `reset` instead ends its connections.
"""

import asyncio
import contextlib
from typing import Self

_CHUNK = 64 << 10


class TcpProxy:
    """Listens on one port and passes every connection on to one target. For one event loop."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    def cut(self) -> None:
        """Let nothing through, in either direction of every connection; connecting still works."""
        self._flowing.clear()

    async def refuse(self) -> None:
        """End all connections and take no new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.reset()

    async def heal(self) -> None:
        """Be a good link again."""
        self._flowing.set()
        if self._server is None:
            await self._listen()

    async def reset(self) -> None:
        """End all connections, with what is held back in them."""
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._connect(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            writers.append(there_writer)
            ways = [
                asyncio.ensure_future(self._pass_on(reader, there_writer)),
                asyncio.ensure_future(self._pass_on(there_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # nobody listens there: the caller sees its connection end
        finally:
            for each in writers:
                # At once: a lingering close would still deliver what a cut should have held back.
                each.transport.abort()
            for each in writers:
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            await self._flowing.wait()
