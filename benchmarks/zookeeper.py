"""A real ZooKeeper ensemble to compare the metadata quorum with: three servers, each a process with its own folder.

The jars are those that pyspark brings along. Everything stays as ZooKeeper ships it, above all the sync of its log
before it acknowledges.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

SERVERS = 3
_HOST = "127.0.0.1"
# What the server loads. The rest of pyspark's jars would only make it start slower.
_JARS = ("zookeeper", "slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl", "metrics-core", "netty", "snappy")
# As in ZooKeeper's own start script; without it Java would take a quarter of the memory for each server.
_HEAP_MB = 1000
_READY_WITHIN_S = 60.0
_STOP_WITHIN_S = 10.0

_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class NotReady(RuntimeError):
    """The ensemble cannot run here, or did not come up."""


class Ports(NamedTuple):
    """Where one server listens."""

    client: int
    peers: int
    election: int


class Cpu(NamedTuple):
    """Processor seconds of some processes since they began, or between two moments."""

    user_s: float
    system_s: float

    @classmethod
    def of(cls, pids: list[int]) -> "Cpu":
        """What the processes have used so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        # The name in front of the last parenthesis may hold spaces; utime and stime are fields 14 and 15 of the line.
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return cls(sum(int(each[11]) for each in fields) / ticks, sum(int(each[12]) for each in fields) / ticks)

    def since(self, before: "Cpu") -> "Cpu":
        """What was used after an earlier moment."""
        return Cpu(self.user_s - before.user_s, self.system_s - before.system_s)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Three servers that have elected a leader."""

    ports: tuple[Ports, ...]
    pids: tuple[int, ...]

    @property
    def hosts(self) -> str:
        """What a client connects to; it picks one of them at random."""
        return ",".join(f"{_HOST}:{port.client}" for port in self.ports)

    def cpu(self) -> Cpu:
        """Processor time of all servers so far."""
        return Cpu.of(list(self.pids))

    def modes(self) -> list[str]:
        """``leader`` or ``follower`` for each server; empty for one that does not serve."""
        return [_mode(port.client) for port in self.ports]


@contextmanager
def ensemble(folder: Path) -> Iterator[Ensemble]:
    """Three servers below ``folder``, stopped again however the block ends."""
    java, jars = _java(), _class_path()
    ports = _free_ports(SERVERS)
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    with ExitStack() as stack:
        processes = []
        for number in range(1, SERVERS + 1):
            settings = _settings(folder / f"server-{number}", number, ports)
            command = [java, f"-Xmx{_HEAP_MB}m", f"-Dlog4j2.configurationFile={log4j}", "-cp", jars]
            command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)]
            processes.append(stack.enter_context(_server(command, folder / f"server-{number}" / "server.log")))
        running = Ensemble(tuple(ports), tuple(process.pid for process in processes))
        _await_leader(running, processes, folder)
        yield running


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        raise NotReady("ZooKeeper needs Java 17 or newer: there is no 'java' in JAVA_HOME or on the PATH")
    return found


def _class_path() -> str:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotReady("ZooKeeper comes with pyspark, which is not installed: 'make bench' installs the extra 'bench'")
    folder = Path(spec.origin).parent / "jars"
    jars = sorted(path for path in folder.glob("*.jar") if path.name.startswith(_JARS))
    if not any(path.name.startswith("zookeeper-") for path in jars):
        raise NotReady(f"there is no ZooKeeper in {folder}")
    return os.pathsep.join(map(str, jars))


def zookeeper_version() -> str:
    """Which ZooKeeper is measured, as the name of its jar says."""
    names = (Path(jar).stem for jar in _class_path().split(os.pathsep))
    return next(name for name in names if name.startswith("zookeeper-") and "jute" not in name).partition("-")[2]


def _free_ports(servers: int) -> list[Ports]:
    """Ports that are free now: all are bound at once, so that none comes up twice."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3 * servers)]
        for each in sockets:
            each.bind((_HOST, 0))
        numbers = [each.getsockname()[1] for each in sockets]
    return [Ports(*numbers[first : first + 3]) for first in range(0, len(numbers), 3)]


def _settings(folder: Path, number: int, ports: list[Ports]) -> Path:
    """A server's folder with its number and its settings, which are those of ZooKeeper's own sample."""
    data = folder / "data"
    data.mkdir(parents=True)
    (data / "myid").write_text(f"{number}\n")
    peers = [f"server.{peer}={_HOST}:{port.peers}:{port.election}" for peer, port in enumerate(ports, start=1)]
    lines = [
        "tickTime=2000",
        "initLimit=10",
        "syncLimit=5",
        f"dataDir={data}",
        f"clientPort={ports[number - 1].client}",
        f"clientPortAddress={_HOST}",
        "admin.enableServer=false",
        *peers,
    ]
    path = folder / "zoo.cfg"
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def _server(command: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=log.parent, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_leader(running: Ensemble, processes: "list[subprocess.Popen[bytes]]", folder: Path) -> None:
    give_up = time.monotonic() + _READY_WITHIN_S
    while "" in running.modes():
        dead = any(process.poll() is not None for process in processes)
        if dead or time.monotonic() > give_up:
            tails = [path.read_text(errors="replace")[-1000:] for path in sorted(folder.glob("server-*/server.log"))]
            raise NotReady("ZooKeeper did not come up:\n" + "\n".join(tails))
        time.sleep(0.1)


def _mode(port: int) -> str:
    """What a server says that it is: ``srvr`` is the one status word that it answers by default."""
    with suppress(OSError), socket.create_connection((_HOST, port), timeout=2) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
        for line in answer.decode().splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
    return ""
