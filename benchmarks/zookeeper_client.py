"""What ZooKeeper's clients do, with kazoo: nodes created one at a time, or many in flight from several processes.

As a program it is one of those processes: it says ``ready``, waits for a line, and prints one line of JSON.
"""

import importlib
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

from benchmarks.machine import ROOT
from benchmarks.zookeeper import Cpu, Ensemble, NotReady

IN_FLIGHT = 64
VALUE = bytes(100)
_PARENT = "/lograft-bench"
_CONNECT_WITHIN_S = 30.0
_DRAIN_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """What several client processes reached together."""

    creates_per_s: float
    failed: int
    seconds: float
    # From the start signal to the end of the last answer, all clients and all servers.
    clients: Cpu
    servers: Cpu


def create_latencies(ensemble: Ensemble, creates: int, value: bytes = VALUE) -> list[float]:
    """Seconds that each of so many creates took, one after the other, over a new session."""
    taken_s = []
    with _session(ensemble.hosts) as (client, prefix):
        for number in range(creates):
            path = f"{prefix}{number}"
            begin = time.perf_counter()
            client.create(path, value)
            taken_s.append(time.perf_counter() - begin)
    return taken_s


def create_throughput(
    ensemble: Ensemble, clients: int, duration_s: float, in_flight: int = IN_FLIGHT, value: bytes = VALUE
) -> Throughput:
    """Creates that so many client processes complete in a time that begins for all together."""
    arguments = (ensemble.hosts, duration_s, in_flight, len(value))
    command = [sys.executable, "-m", "benchmarks.zookeeper_client", *map(str, arguments)]
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(command)) for _ in range(clients)]
        for process in processes:
            if _line(process) != "ready":
                raise RuntimeError("a ZooKeeper client did not get ready")
        before = ensemble.cpu()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        reports = [json.loads(_line(process)) for process in processes]
        servers = ensemble.cpu().since(before)
    return Throughput(
        creates_per_s=sum(report["created"] for report in reports) / duration_s,
        failed=sum(report["failed"] for report in reports),
        seconds=duration_s,
        clients=Cpu(sum(each["user_s"] for each in reports), sum(each["system_s"] for each in reports)),
        servers=servers,
    )


@contextmanager
def _process(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a ZooKeeper client ended with {process.wait()}")
    return line.strip()


@contextmanager
def _session(hosts: str) -> Iterator[tuple[Any, str]]:
    """A connected client, and a prefix for paths that nobody else uses, below a parent that exists."""
    try:
        kazoo = importlib.import_module("kazoo.client")
    except ModuleNotFoundError as error:
        raise NotReady("the client is kazoo, not installed: 'make bench' installs the extra 'bench'") from error
    client = kazoo.KazooClient(hosts=hosts)
    try:
        client.start(timeout=_CONNECT_WITHIN_S)
        client.ensure_path(_PARENT)
        yield client, f"{_PARENT}/{uuid4().hex[:8]}-"
    finally:
        client.stop()
        client.close()


class _Load:
    """Keeps creates in flight: each that completes starts the next, in the thread that kazoo completes them in."""

    def __init__(self, client: Any, prefix: str, value: bytes) -> None:
        self._client, self._prefix, self._value = client, prefix, value
        self._numbers = count()
        self._left = 0
        self._deadline = 0.0
        self._idle = threading.Event()
        self.created = 0
        self.failed = 0

    def run(self, in_flight: int, duration_s: float) -> None:
        """Returns when the time is over and the last answer came."""
        self._left = in_flight
        self._deadline = time.monotonic() + duration_s
        for _ in range(in_flight):
            self._create()
        if not self._idle.wait(duration_s + _DRAIN_WITHIN_S):
            raise RuntimeError("creates are still unanswered long after the end")

    def _create(self) -> None:
        path = f"{self._prefix}{next(self._numbers)}"
        self._client.create_async(path, self._value).rawlink(self._completed)

    def _completed(self, result: Any) -> None:
        in_time = time.monotonic() < self._deadline
        # Only this one thread counts.
        if not result.successful():
            self.failed += 1
        elif in_time:
            self.created += 1
        if in_time:
            self._create()
            return
        self._left -= 1
        if self._left == 0:
            self._idle.set()


def main() -> None:
    """``zookeeper_client HOSTS SECONDS IN_FLIGHT VALUE_BYTES``."""
    hosts, duration_s, in_flight, value_bytes = sys.argv[1:]
    with _session(hosts) as (client, prefix):
        load = _Load(client, prefix, bytes(int(value_bytes)))
        print("ready", flush=True)
        sys.stdin.readline()
        before = resource.getrusage(resource.RUSAGE_SELF)
        load.run(int(in_flight), float(duration_s))
        after = resource.getrusage(resource.RUSAGE_SELF)
    report = {
        "created": load.created,
        "failed": load.failed,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
