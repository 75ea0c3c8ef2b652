"""What the quorum's clients do: changes one at a time, or many in flight from several processes.

As a program it is one of those processes: it says ``ready``, waits for a line, and prints one line of JSON.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple
from uuid import uuid4

import grpc.aio
import uvloop

from benchmarks.machine import ROOT
from benchmarks.zookeeper import Cpu
from lograft.contract.errors import LogError, from_detail
from lograft.metadata_quorum.client import COMMAND_ID_BYTES, QuorumClient
from lograft.metadata_quorum.operation_stream import OperationStream
from lograft.v1 import cluster_pb2, metadata_pb2

# As much as the value that ZooKeeper gets.
_NAME_BYTES = 100
_DRAIN_WITHIN_S = 30.0


class Packing(NamedTuple):
    """How changes travel: how many belong to a call, and how many a message may carry at most."""

    per_call: int
    per_message: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """What several client processes reached together."""

    changes_per_s: float
    failed: int
    clients: Cpu
    servers: Cpu


class Changes:
    """An endless supply of changes that are all different, also from those of other processes."""

    def __init__(self) -> None:
        self._prefix = uuid4().hex[:16]
        self._numbers = count()

    def next(self) -> cluster_pb2.Operation:
        """The limit of a user that nobody has named before."""
        user = f"{self._prefix}-{next(self._numbers)}".ljust(_NAME_BYTES, "-")
        quota = cluster_pb2.AlterQuotaOperation(entity=metadata_pb2.QuotaEntity(user=user), set={"request_rate": 100.0})
        return cluster_pb2.Operation(command_id=os.urandom(COMMAND_ID_BYTES), alter_quota=quota)


async def change_latencies(client: QuorumClient, changes: int) -> list[float]:
    """Seconds that each of so many changes took, one after the other."""
    supply = Changes()
    taken_s = []
    for _ in range(changes):
        operation = supply.next()
        begin = time.perf_counter()
        await client.do(operation)
        taken_s.append(time.perf_counter() - begin)
    return taken_s


def change_throughput(
    addresses: Iterable[str], servers: list[int], *, clients: int, duration_s: float, in_flight: int, packing: Packing
) -> Throughput:
    """Changes that so many client processes complete in a time that begins for all together."""
    arguments = (",".join(addresses), duration_s, in_flight, packing.per_call, packing.per_message)
    command = [sys.executable, "-m", "benchmarks.quorum_client", *map(str, arguments)]
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(command)) for _ in range(clients)]
        for process in processes:
            if _line(process) != "ready":
                raise RuntimeError("a client of the quorum did not get ready")
        before = Cpu.of(servers)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        reports = [json.loads(_line(process)) for process in processes]
        used = Cpu.of(servers).since(before)
    return Throughput(
        changes_per_s=sum(report["changed"] for report in reports) / duration_s,
        failed=sum(report["failed"] for report in reports),
        clients=Cpu(sum(each["user_s"] for each in reports), sum(each["system_s"] for each in reports)),
        servers=used,
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
        raise RuntimeError(f"a client of the quorum ended with {process.wait()}")
    return line.strip()


class _Controller:
    """A stream to the controller, and another one after it broke or the controller moved."""

    def __init__(self, client: QuorumClient, per_message: int) -> None:
        self._client, self._per_message = client, per_message
        self._stream: OperationStream | None = None
        self._finding = asyncio.Lock()

    async def stream(self) -> OperationStream:
        """One that works, as far as is known."""
        async with self._finding:
            if self._stream is None or self._stream.broken:
                await self.close()
                self._stream = await self._client.at_controller(self._open)
            return self._stream

    async def _open(self, channel: grpc.aio.Channel, timeout_s: float) -> OperationStream:
        stream = OperationStream(channel, per_message=self._per_message)
        barrier = cluster_pb2.Operation(barrier=cluster_pb2.BarrierOperation())
        try:
            result = await asyncio.wait_for(stream.submit(barrier), timeout_s)
        except BaseException:
            await stream.close()
            raise
        if not result.HasField("applied"):
            await stream.close()
            raise from_detail(result.error)
        return stream

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close()


class _Load:
    """Keeps calls in flight: each that completes is followed by the next."""

    def __init__(self, controller: _Controller, per_call: int) -> None:
        self._controller, self._per_call = controller, per_call
        self._supply = Changes()
        self._deadline = 0.0
        self.changed = 0
        self.failed = 0

    async def run(self, in_flight: int, duration_s: float) -> None:
        """Returns when the time is over and the last answer came."""
        self._deadline = time.monotonic() + duration_s
        async with asyncio.timeout(duration_s + _DRAIN_WITHIN_S):
            await asyncio.gather(*(self._call_again_and_again() for _ in range(in_flight)))

    async def _call_again_and_again(self) -> None:
        while time.monotonic() < self._deadline:
            stream = await self._controller.stream()
            while time.monotonic() < self._deadline and not stream.broken:
                try:
                    await self._call(stream)
                except (LogError, grpc.aio.AioRpcError):
                    self.failed += self._per_call

    async def _call(self, stream: OperationStream) -> None:
        answers = [stream.submit(self._supply.next()) for _ in range(self._per_call)]
        # One after the other: nothing is gained by a task for each, they are answered together.
        results = [await answer for answer in answers]
        applied = sum(result.HasField("applied") for result in results)
        self.failed += len(results) - applied
        if time.monotonic() < self._deadline:
            self.changed += applied


async def _main(addresses: str, duration_s: float, in_flight: int, packing: Packing) -> None:
    async with QuorumClient(addresses.split(",")) as client:
        controller = _Controller(client, packing.per_message)
        await controller.stream()
        load = _Load(controller, packing.per_call)
        print("ready", flush=True)
        sys.stdin.readline()
        before = resource.getrusage(resource.RUSAGE_SELF)
        await load.run(in_flight, duration_s)
        after = resource.getrusage(resource.RUSAGE_SELF)
        await controller.close()
    report = {
        "changed": load.changed,
        "failed": load.failed,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
    }
    print(json.dumps(report), flush=True)


def main() -> None:
    """``quorum_client ADDRESSES SECONDS IN_FLIGHT PER_CALL PER_MESSAGE``."""
    addresses, duration_s, in_flight, per_call, per_message = sys.argv[1:]
    packing = Packing(int(per_call), int(per_message))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(addresses, float(duration_s), int(in_flight), packing))


if __name__ == "__main__":
    main()
