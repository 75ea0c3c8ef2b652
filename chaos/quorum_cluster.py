"""A metadata quorum of real processes on this machine, with the means to hurt it.

For tests and benchmarks. Every node has its own directory, configuration and log file below one folder, which stays
when something went wrong. Processes are stopped by their pid, also on failure; should this process be killed, they go
with it. With ``links="proxied"`` every directed link between two nodes leads through a `TcpProxy` of its own.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Literal, Self, cast

from lograft.chaos.ports import PortClaim
from lograft.chaos.tcp_proxy import TcpProxy
from lograft.contract.errors import LogError
from lograft.metadata_quorum.client import QuorumClient, StateFollower
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.v1 import cluster_pb2, quorum_pb2

_POLL_S = 0.02
_STATUS_TIMEOUT_S = 1.0
# What must never stand in a node's log: bugs, and promises that were broken.
_COMPLAINT = re.compile(r"Traceback|incident|never retrieved|never awaited|CRITICAL|not safe any more|diverged")


class QuorumTimeout(Exception):
    """Something did not come about in time; the text says what."""


class QuorumNode:
    """One node: its files, and its process if it runs."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.config = folder / f"{name}.toml"
        self.directory = folder / name
        self.output = folder / f"{name}.out"
        self.log_file = folder / f"{name}.log"
        # Added to the environment of the next start: faults of the disk, mostly.
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether there is a process, stopped or not."""
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        """Everything the node has ever written to its log."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def spawn(self) -> None:
        """Start the process."""
        if self.running:
            raise RuntimeError(f"{self.name} runs already")
        command = [sys.executable, "-m", "lograft.cli", "quorum", "run", "--config", str(self.config)]
        guard = shutil.which("setpriv")
        if guard is not None:
            command = [guard, "--pdeathsig", "KILL", *command]
        with self.output.open("wb") as output, self.log_file.open("ab") as log:
            # Only our own program and files that we wrote.
            self.process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, env={**os.environ, **self.environment}
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if there is a process."""
        if self.process is not None and self.running:
            self.process.send_signal(number)

    async def ended(self, timeout_s: float = 20.0) -> int:
        """Wait for the end of the process; its exit code."""
        process = self.process
        if process is None:
            return 0
        await until(lambda: process.poll() is not None, f"the end of {self.name}", timeout_s)
        return process.returncode


class QuorumCluster:
    """Some nodes that form a quorum. Names are q1, q2 and so on."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        *,
        links: Literal["direct", "proxied"] = "direct",
        timing: Mapping[str, int] | None = None,
        snapshots: Mapping[str, int] | None = None,
        request_timeout_ms: int = 10_000,
        spare_nodes: int = 0,
    ) -> None:
        """``timing`` (milliseconds) and ``snapshots`` are sections of the configuration file.

        ``spare_nodes`` are named in no configuration of a first quorum, and can be started later and be added.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._claim = PortClaim()
        self._free_ports = iter(self._claim.ports)
        self.nodes: dict[str, QuorumNode] = {}
        self.first = tuple(f"q{number}" for number in range(1, nodes + 1))
        for number in range(1, nodes + spare_nodes + 1):
            name = f"q{number}"
            self.nodes[name] = QuorumNode(folder, name, next(self._free_ports))
        self.proxies: dict[tuple[str, str], TcpProxy] = {}
        if links == "proxied":
            for caller in self.nodes:
                for callee, node in self.nodes.items():
                    if caller != callee:
                        proxy = TcpProxy(next(self._free_ports), ("127.0.0.1", node.port))
                        self.proxies[caller, callee] = proxy
        # Logs with complaints that a test brings about itself.
        self.may_complain: set[str] = set()
        self._sections = {"timing": timing, "snapshots": snapshots}
        self._request_timeout_ms = request_timeout_ms
        self._eyes: QuorumClient | None = None

    async def __aenter__(self) -> Self:
        try:
            for proxy in self.proxies.values():
                await proxy.__aenter__()
            for name in self.nodes:
                self.write_config(name)
            await self.start(*self.first)
            await self.wait_for_controller()
        except BaseException as error:
            await self._end(error)
            raise
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await self._end(error)
        if error is None and (complaints := self.complaints()):
            self._show()
            raise AssertionError("\n".join(["the logs of the nodes complain:", *complaints]))

    async def _end(self, error: BaseException | None) -> None:
        for node in self.nodes.values():
            node.signal(signal.SIGKILL)
        for node in self.nodes.values():
            if node.process is not None:
                node.process.wait()
        for proxy in self.proxies.values():
            await proxy.refuse()
        if self._eyes is not None:
            await self._eyes.close()
            self._eyes = None
        self._claim.release()
        if error is not None:
            self._show()

    def _show(self) -> None:
        sys.stderr.write(f"\nthe quorum's files are kept in {self.folder}\n")
        for name, node in self.nodes.items():
            for line in node.log.splitlines()[-15:]:
                sys.stderr.write(f"{name}: {line}\n")

    def complaints(self) -> list[str]:
        """Lines of logs that no healthy node writes, whatever is done to it from outside."""
        return [
            f"{name}: {line}"
            for name, node in self.nodes.items()
            if name not in self.may_complain
            for line in node.log.splitlines()
            if _COMPLAINT.search(line)
        ]

    # Configuration

    @property
    def addresses(self) -> dict[str, str]:
        """Where clients reach the nodes that were ever started, by name."""
        return {name: node.address for name, node in self.nodes.items() if node.process is not None}

    def write_config(self, name: str) -> None:
        """The node's configuration file."""
        node = self.nodes[name]
        lines = [
            f'name = "{name}"',
            f'directory = "{name}"',
            f'listen = "{node.address}"',
            f"request_timeout_ms = {self._request_timeout_ms}",
        ]
        if name in self.first:
            lines += ["[members]", *(f'{each} = "{self.nodes[each].address}"' for each in self.first)]
        # A node that joins later is told where the others are: how else should it answer them.
        lines.append("[dial]")
        for other, there in self.nodes.items():
            proxy = self.proxies.get((name, other))
            if proxy is not None:
                lines.append(f'{other} = "127.0.0.1:{proxy.port}"')
            elif other != name and name not in self.first:
                lines.append(f'{other} = "{there.address}"')
        for section, values in self._sections.items():
            if values:
                lines += [f"[{section}]", *(f"{key} = {value}" for key, value in values.items())]
        node.config.write_text("\n".join(lines) + "\n")

    # Processes

    async def start(self, *names: str) -> None:
        """Start nodes and wait until each says that it is ready."""
        for name in names:
            self.nodes[name].spawn()
        for name in names:
            await self._ready(self.nodes[name])

    async def _ready(self, node: QuorumNode) -> None:
        def said_so() -> bool:
            if not node.running:
                raise QuorumTimeout(f"{node.name} ended with {node.process and node.process.returncode}:\n{node.log}")
            return b'"ready"' in node.output.read_bytes()

        await until(said_so, f"{node.name} is ready")

    async def kill(self, *names: str) -> None:
        """SIGKILL, all at once."""
        for name in names:
            self.nodes[name].signal(signal.SIGKILL)
        for name in names:
            await self.nodes[name].ended()

    async def terminate(self, *names: str) -> list[int]:
        """SIGTERM; the exit codes."""
        for name in names:
            self.nodes[name].signal(signal.SIGTERM)
        return [await self.nodes[name].ended() for name in names]

    def stop(self, *names: str) -> None:
        """SIGSTOP: the process stands still and knows nothing of it."""
        for name in names:
            self.nodes[name].signal(signal.SIGSTOP)

    def cont(self, *names: str) -> None:
        """SIGCONT."""
        for name in names:
            self.nodes[name].signal(signal.SIGCONT)

    def wipe(self, name: str) -> None:
        """Remove the directory of a node that does not run."""
        if self.nodes[name].running:
            raise RuntimeError(f"{name} runs")
        shutil.rmtree(self.nodes[name].directory)

    # Links

    def cut(self, caller: str, callee: str) -> None:
        """One way: nothing that ``caller`` sends to ``callee`` arrives. Needs proxied links."""
        self.proxies[caller, callee].cut()

    def isolate(self, name: str) -> None:
        """Both ways, from and to everybody."""
        for link, proxy in self.proxies.items():
            if name in link:
                proxy.cut()

    async def refuse(self, caller: str, callee: str) -> None:
        """As `cut`, but the connection breaks and a new one is refused."""
        await self.proxies[caller, callee].refuse()

    async def heal(self, *, reset: bool = False) -> None:
        """All links are good again. What was held back arrives now, unless connections are ``reset``."""
        for proxy in self.proxies.values():
            if reset:
                await proxy.reset()
            await proxy.heal()

    # Looking

    def client(self, *, timeout_s: float = 20.0) -> QuorumClient:
        """A client of all nodes; close it."""
        return QuorumClient(self.addresses, timeout_s=timeout_s)

    async def status(self, name: str) -> quorum_pb2.StatusResponse | None:
        """What one node says; None if it does not answer."""
        if self._eyes is None:
            self._eyes = QuorumClient(
                {each: node.address for each, node in self.nodes.items()}, timeout_s=_STATUS_TIMEOUT_S
            )
        try:
            return await self._eyes.status(self.nodes[name].address)
        except LogError:
            return None

    async def statuses(self) -> dict[str, quorum_pb2.StatusResponse]:
        """What the nodes that run and answer say."""
        names = [name for name, node in self.nodes.items() if node.running]
        answers = await asyncio.gather(*map(self.status, names))
        return {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}

    async def leader(self) -> str | None:
        """The active controller, if one says that it is. Of several, the one of the newest term."""
        leading = [status for status in (await self.statuses()).values() if status.controller]
        return max(leading, key=lambda status: status.term).node if leading else None

    async def wait_for_controller(self, *, other_than: Iterable[str] = (), timeout_s: float = 30.0) -> str:
        """Wait until a node that a majority of its members follows is the controller."""
        avoided = set(other_than)
        found = ""

        async def there_is_one() -> bool:
            nonlocal found
            statuses = await self.statuses()
            for name, status in statuses.items():
                members = {member.name for member in status.members}
                followers = [s for n, s in statuses.items() if n in members and s.leader == name]
                if status.controller and name not in avoided and len(followers) * 2 > len(members):
                    found = name
                    return True
            return False

        await until_async(there_is_one, f"a controller other than {sorted(avoided)}", timeout_s)
        return found

    async def wait_for_status(
        self, name: str, wanted: Callable[[quorum_pb2.StatusResponse], bool], what: str, timeout_s: float = 30.0
    ) -> quorum_pb2.StatusResponse:
        """Wait until a node's status is as ``wanted``."""
        found = quorum_pb2.StatusResponse()

        async def is_so() -> bool:
            nonlocal found
            status = await self.status(name)
            if status is not None:
                found = status
            return status is not None and wanted(status)

        try:
            await until_async(is_so, what, timeout_s)
        except QuorumTimeout as error:
            raise QuorumTimeout(f"{error}; last status of {name}:\n{found}") from None
        return found

    async def equal_states(self, *names: str, timeout_s: float = 30.0) -> StateFollower:
        """Wait until the nodes (all that run, if none is named) are at one version; raises if their states differ.

        Each state is the node's own, as it sends it to a watcher that begins.
        """
        names = names or tuple(name for name, node in self.nodes.items() if node.running)
        async with self.client() as client, asyncio.timeout(timeout_s):
            target = (await client.do(cluster_pb2.Operation(barrier=cluster_pb2.BarrierOperation()))).version
            while True:
                followers = [await self.follow(client, name, target) for name in names]
                versions = {follower.state.version for follower in followers}
                if len(versions) == 1:
                    break
                target = max(versions)
        encoded = {name: fingerprint(follower) for name, follower in zip(names, followers, strict=True)}
        if len(set(encoded.values())) != 1:
            for name, data in encoded.items():
                (self.folder / f"{name}.state").write_bytes(data)
            raise AssertionError(f"states differ at version {versions}: see {self.folder}/*.state")
        return followers[0]

    async def follow(self, client: QuorumClient, name: str, version: int) -> StateFollower:
        """A new follower of one node, at ``version`` or above."""
        while True:
            follower = StateFollower()
            with contextlib.suppress(LogError):
                async with watching(client, follower, self.nodes[name].address) as stream:
                    async for _ in stream:
                        if follower.state.version >= version:
                            return follower
            await asyncio.sleep(_POLL_S)


def fingerprint(follower: StateFollower) -> bytes:
    """The whole state as bytes."""
    return b"".join(encode_pieces(capture(follower.state)))


def watching(client: QuorumClient, follower: StateFollower, address: str) -> "aclosing[AsyncGenerator[int, None]]":
    """`QuorumClient.watch`, closed when its reader leaves the block and not by the garbage collector."""
    return aclosing(cast("AsyncGenerator[int, None]", client.watch(follower, address)))


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Wait until it is so. Raises `QuorumTimeout`."""

    async def is_so() -> bool:
        return condition()

    await until_async(is_so, what, timeout_s)


async def until_async(condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 30.0) -> None:
    """As `until`, for a condition that has to be asked for."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not await condition():
        if loop.time() > deadline:
            raise QuorumTimeout(f"waited {timeout_s:.0f} s for {what}")
        await asyncio.sleep(_POLL_S)
