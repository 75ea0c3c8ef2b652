"""The benchmarks of the metadata quorum: three real processes, for speed beside a real ZooKeeper of three servers.

Only one of the two is loaded at a time; the other idles.
"""

import asyncio
import math
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.fake_brokers import FakeBroker, Fence, fake_brokers, fences
from benchmarks.harness import Bar, Fact, Reporter, Row, alternate
from benchmarks.quorum_client import Changes, Packing, change_latencies, change_throughput
from benchmarks.zookeeper import NotReady, ensemble, zookeeper_version
from benchmarks.zookeeper_client import create_latencies, create_throughput
from lograft.chaos.quorum_cluster import QuorumCluster, QuorumNode
from lograft.contract.errors import LogError
from lograft.metadata_quorum.client import QuorumClient
from lograft.v1 import cluster_pb2, metadata_pb2, quorum_pb2

_CLIENTS = 4
_IN_FLIGHT = 64
_COALESCED = Packing(per_call=1, per_message=1_000)
_STRICT = Packing(per_call=1, per_message=1)
_MANY = Packing(per_call=100, per_message=100)
_ZOOKEEPER = "ZooKeeper"
# Long enough that an election is not waited for, short enough that a client never sleeps through the first moment.
_IMPATIENT_S = 0.3
_GRACE_MS = 100
_HOUR_MS = 3_600_000
# A session that outlives whatever this process is busy with: no broker is to be fenced but by the measure.
_SESSION_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured. The quick ones show that everything works; their figures mean nothing."""

    rounds: int = 5
    warm_up_changes: int = 2_000
    changes_per_round: int = 500
    warm_up_s: float = 5.0
    round_s: float = 5.0
    kills: int = 20
    # Of topics with so many partitions each, and how often the broker that leads all of them is lost.
    partitions_per_topic: int = 1_000
    fenced_topics: tuple[tuple[int, int], ...] = ((1, 5), (10, 3))
    created_topics: int = 5
    many_topics: int = 100
    restarts: int = 3

    @classmethod
    def quick(cls) -> "Sizes":
        """Seconds instead of minutes."""
        return cls(
            rounds=1,
            warm_up_changes=20,
            changes_per_round=20,
            warm_up_s=0.3,
            round_s=0.3,
            kills=1,
            partitions_per_topic=20,
            fenced_topics=((1, 1), (2, 1)),
            created_topics=1,
            many_topics=3,
            restarts=1,
        )


class Lab:
    """Where the measures work: sizes, a folder for each, and progress."""

    def __init__(self, data: Path, sizes: Sizes, reporter: Reporter) -> None:
        self.sizes, self.reporter = sizes, reporter
        self._data, self._numbers = data, count()

    def folder(self, name: str) -> Path:
        """A new one."""
        folder = self._data / f"{name}-{next(self._numbers)}"
        folder.mkdir()
        return folder


@dataclass(frozen=True, slots=True)
class _Quorum:
    """A quorum that runs, for a caller that is not asynchronous itself."""

    runner: asyncio.Runner
    cluster: QuorumCluster

    @property
    def pids(self) -> list[int]:
        return list(map(_pid, self.cluster.nodes.values()))


@contextmanager
def _quorum(folder: Path, snapshots: Mapping[str, int] | None = None) -> Iterator[_Quorum]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        cluster = QuorumCluster(folder, snapshots=snapshots)
        runner.run(cluster.__aenter__())
        try:
            yield _Quorum(runner, cluster)
        except BaseException as error:
            runner.run(cluster.__aexit__(type(error), error, None))
            raise
        runner.run(cluster.__aexit__(None, None, None))


def _pid(node: QuorumNode) -> int:
    assert node.process is not None
    return node.process.pid


# Against ZooKeeper


def latency(lab: Lab) -> list[Row]:
    """One change at a time, synced on a majority."""
    sizes = lab.sizes
    pooled: dict[str, list[float]] = {"quorum": [], _ZOOKEEPER: []}
    with _quorum(lab.folder("quorum")) as quorum, ensemble(lab.folder("zookeeper")) as zookeeper:
        client = quorum.cluster.client()

        def change(changes: int) -> list[float]:
            return quorum.runner.run(change_latencies(client, changes))

        def create(creates: int) -> list[float]:
            return create_latencies(zookeeper, creates)

        def side(name: str, work: Callable[[int], list[float]]) -> Callable[[], float]:
            def round_() -> float:
                taken_s = work(sizes.changes_per_round)
                pooled[name] += taken_s
                return median(taken_s)

            return round_

        with lab.reporter.task("latency", 2 * sizes.rounds + 2) as tick:
            for work in (change, create):
                work(sizes.warm_up_changes)
                tick()
            alternate({"quorum": side("quorum", change), _ZOOKEEPER: side(_ZOOKEEPER, create)}, sizes.rounds, tick)
        quorum.runner.run(client.close())
    rows = []
    for share in (50, 99):
        ours, theirs = (_percentile(pooled[name], share) for name in ("quorum", _ZOOKEEPER))
        detail: dict[str, Fact] = {"quorum ms": ours * 1e3, f"{_ZOOKEEPER} ms": theirs * 1e3}
        detail |= {f"{name} changes": float(len(taken_s)) for name, taken_s in pooled.items()}
        detail["ZooKeeper version"] = zookeeper_version()
        rows.append(
            Row(f"one change at a time, p{share}, against ZooKeeper", ours / theirs, "x", Bar("<=", 1.5), detail)
        )
    return rows


def throughput(lab: Lab) -> list[Row]:
    """Many changes in flight from several processes."""
    sizes = lab.sizes
    failed: dict[str, int] = {}
    cpu: dict[str, list[float]] = {}
    with _quorum(lab.folder("quorum")) as quorum, ensemble(lab.folder("zookeeper")) as zookeeper:

        def change(name: str, packing: Packing, duration_s: float) -> float:
            done = change_throughput(
                quorum.cluster.addresses.values(),
                quorum.pids,
                clients=_CLIENTS,
                duration_s=duration_s,
                in_flight=_IN_FLIGHT,
                packing=packing,
            )
            failed[name] = failed.get(name, 0) + done.failed
            cpu[name] = [sum(done.clients), sum(done.servers)]
            return _seconds_each(done.changes_per_s, duration_s)

        def create(name: str, duration_s: float) -> float:
            done = create_throughput(zookeeper, _CLIENTS, duration_s, _IN_FLIGHT)
            failed[name] = failed.get(name, 0) + done.failed
            cpu[name] = [sum(done.clients), sum(done.servers)]
            return _seconds_each(done.creates_per_s, duration_s)

        coalesced, strict, many = "one change per call", "one change per message", "many changes per message"
        sides: dict[str, Callable[[float], float]] = {
            coalesced: lambda duration_s: change(coalesced, _COALESCED, duration_s),
            _ZOOKEEPER: lambda duration_s: create(_ZOOKEEPER, duration_s),
            many: lambda duration_s: change(many, _MANY, duration_s),
            strict: lambda duration_s: change(strict, _STRICT, duration_s),
        }
        with lab.reporter.task("throughput", len(sides) * (sizes.rounds + 1)) as tick:
            for work in sides.values():
                work(sizes.warm_up_s)
                tick()
            failed.clear()
            rounds = {name: _bound(work, sizes.round_s) for name, work in sides.items()}
            samples = alternate(rounds, sizes.rounds, tick)
    detail: dict[str, Fact] = {f"{name}, changes/s": 1 / samples.median(name) for name in sides}
    detail |= {f"{name}, spread": samples.spread(name) for name in sides}
    detail |= {f"{name}, failed": float(failed[name]) for name in sides}
    detail |= {f"{name}, CPU s of clients and servers in a round": cpu[name] for name in sides}
    detail[f"{strict}, against ZooKeeper"] = samples.ratio(_ZOOKEEPER, strict)
    in_flight = f"{_CLIENTS} processes with {_IN_FLIGHT}"
    note = "kazoo limits ZooKeeper here: with a Java client it reached 9,000-12,000/s on such a machine"
    return [
        Row(
            f"{name}, {in_flight} {what} in flight, against ZooKeeper",
            samples.ratio(_ZOOKEEPER, name),
            "x",
            Bar(">=", limit),
            detail,
            note,
        )
        for name, what, limit in ((coalesced, "calls", 1.0), (many, "messages of 100", 2.0))
    ]


def _seconds_each(per_s: float, duration_s: float) -> float:
    """A round in which nothing was completed counts as one that completed a single change."""
    return 1 / max(per_s, 1 / duration_s)


def _bound(work: Callable[[float], float], duration_s: float) -> Callable[[], float]:
    return lambda: work(duration_s)


# When something dies


def failover(lab: Lab) -> list[Row]:
    """The controller is killed: when is the next change committed?"""
    taken_s: list[float] = []

    async def measure(cluster: QuorumCluster) -> None:
        with lab.reporter.task("failover", lab.sizes.kills) as tick:
            for _ in range(lab.sizes.kills):
                taken_s.append(await _one_failover(cluster))
                tick()

    with _quorum(lab.folder("failover")) as quorum:
        quorum.runner.run(measure(quorum.cluster))
    detail: dict[str, Fact] = {
        "p50 s": median(taken_s),
        "worst s": max(taken_s),
        "best s": min(taken_s),
        "all s": [round(each, 3) for each in taken_s],
    }
    measure_name = "kill -9 of the controller to the next change"
    return [
        Row(f"{measure_name}, p50", median(taken_s), "s", Bar("<=", 1.2), detail),
        Row(f"{measure_name}, worst of {len(taken_s)}", max(taken_s), "s", Bar("<=", 2.5), detail),
    ]


async def _one_failover(cluster: QuorumCluster) -> float:
    supply = Changes()
    async with cluster.client(timeout_s=_IMPATIENT_S) as client:
        controller = await cluster.wait_for_controller()
        await _insist(client, supply)
        # At any moment between two heartbeats.
        await asyncio.sleep(random.uniform(0, 0.2))  # noqa: S311 - no secret
        begin = time.perf_counter()
        cluster.nodes[controller].signal(signal.SIGKILL)
        await _insist(client, supply)
        taken_s = time.perf_counter() - begin
        await cluster.nodes[controller].ended()
        await cluster.start(controller)
        await _caught_up(cluster, controller, (await cluster.statuses()).values())
    return taken_s


async def _insist(client: QuorumClient, supply: Changes) -> None:
    """Try until a change is committed."""
    while True:
        try:
            await client.do(supply.next())
        except LogError:
            await asyncio.sleep(0.005)
        else:
            return


async def _caught_up(cluster: QuorumCluster, name: str, statuses: Iterable[quorum_pb2.StatusResponse]) -> None:
    target = max(status.commit_index for status in statuses)
    await cluster.wait_for_status(
        name, lambda status: status.applied_index >= target and bool(status.leader), f"{name} has caught up"
    )


def fencing(lab: Lab) -> list[Row]:
    """A broker that leads everything is lost."""
    rows = []
    for (topics, times), limit in zip(lab.sizes.fenced_topics, (0.1, 1.0), strict=True):
        with _quorum(lab.folder("fencing")) as quorum:
            rows.append(quorum.runner.run(_fencing(lab, quorum.cluster, topics, times, limit)))
    return rows


async def _fencing(lab: Lab, cluster: QuorumCluster, topics: int, times: int, limit: float) -> Row:
    crash_s: list[float] = []
    stop_s: list[float] = []
    partitions = topics * lab.sizes.partitions_per_topic
    names = [f"topic-{number}" for number in range(topics)]
    controller = cluster.nodes[await cluster.wait_for_controller()].address
    async with cluster.client() as client:
        await _configure(client, _SESSION_MS, _GRACE_MS)
        version = (await client.do(cluster_pb2.Operation(barrier=cluster_pb2.BarrierOperation()))).version
        async with fake_brokers(client, controller, 3) as brokers, fences(controller, version) as seen:
            with lab.reporter.task(f"fencing, {partitions:,} partitions", 2 * times) as tick:
                for taken_s, lose in ((crash_s, _crash), (stop_s, _stop)):
                    for _ in range(times):
                        # Broker 1 is preferred everywhere, and in sync only in topics that are new.
                        await _each(client, [_led_by_first(name, lab.sizes.partitions_per_topic) for name in names])
                        taken_s.append(await lose(brokers[0], seen, partitions))
                        await brokers[0].start()
                        await _each(client, [_deletion(name) for name in names])
                        tick()
    detail: dict[str, Fact] = {
        "crash to fence seen by a watcher, s": [round(each, 4) for each in crash_s],
        "of which grace, s": _GRACE_MS / 1000,
        "stop_broker, request to answer, s": [round(each, 4) for each in stop_s],
    }
    measure = f"fence a broker that leads {partitions:,} partitions"
    return Row(measure, median(crash_s) - _GRACE_MS / 1000, "s", Bar("<=", limit), detail)


async def _crash(broker: FakeBroker, seen: "asyncio.Queue[Fence]", partitions: int) -> float:
    begin = time.perf_counter()
    broker.crash()
    fence = await seen.get()
    _check(fence, partitions)
    return fence.seen_at - begin


async def _stop(broker: FakeBroker, seen: "asyncio.Queue[Fence]", partitions: int) -> float:
    begin = time.perf_counter()
    await broker.stop()
    taken_s = time.perf_counter() - begin
    _check(await seen.get(), partitions)
    broker.crash()
    return taken_s


def _check(fence: Fence, partitions: int) -> None:
    if (fence.broker_id, fence.partitions, fence.leaderless) != (1, partitions, 0):
        raise RuntimeError(f"not what was to be measured: {fence}")


# Size


def topic_creation(lab: Lab) -> list[Row]:
    """One large topic."""
    taken_s: list[float] = []
    partitions = lab.sizes.partitions_per_topic

    async def measure(cluster: QuorumCluster) -> None:
        controller = cluster.nodes[await cluster.wait_for_controller()].address
        async with cluster.client() as client:
            await _configure(client, _SESSION_MS, _GRACE_MS)
            async with fake_brokers(client, controller, 3):
                for number in range(lab.sizes.created_topics):
                    operation = _placed(f"topic-{number}", partitions)
                    begin = time.perf_counter()
                    await client.do(operation)
                    taken_s.append(time.perf_counter() - begin)

    with lab.reporter.task("topic", 1) as tick, _quorum(lab.folder("topic")) as quorum:
        quorum.runner.run(measure(quorum.cluster))
        tick()
    detail: dict[str, Fact] = {"all s": [round(each, 4) for each in taken_s]}
    return [Row(f"create a topic of {partitions:,} partitions", median(taken_s), "s", Bar("<=", 0.5), detail)]


def many_partitions(lab: Lab) -> list[Row]:
    """Memory, snapshot and restart of a quorum that knows many partitions."""
    sizes = lab.sizes
    partitions = sizes.many_topics * sizes.partitions_per_topic
    # By default a snapshot would come only after more entries than are made here.
    snapshots = {"entries": max(sizes.many_topics // 3, 1), "history_entries": 10}
    with _quorum(lab.folder("partitions"), snapshots) as quorum:
        cluster = quorum.cluster
        with lab.reporter.task(f"{partitions:,} partitions", sizes.many_topics) as tick:
            created_s = quorum.runner.run(_create_many(cluster, sizes, tick))
        memory = {name: _memory_mb(_pid(node)) for name, node in cluster.nodes.items()}
        with lab.reporter.task(f"restart with {partitions:,} partitions", sizes.restarts) as tick:
            restart_s = quorum.runner.run(_restarts(cluster, sizes.restarts, tick))
        reloaded = {name: _memory_mb(_pid(node)) for name, node in cluster.nodes.items()}
        snapshot_mb = max(path.stat().st_size for path in cluster.folder.glob("q*/*snapshot*")) / 1e6
    shape: dict[str, Fact] = {"partitions": float(partitions), "replicas of each": 3.0, "snapshot MB": snapshot_mb}
    resident = max(now for now, _ in memory.values())
    return [
        Row(
            f"memory of a quorum node with {partitions:,} partitions",
            resident,
            "MB",
            Bar("<=", 600),
            {
                "VmRSS MB": [now for now, _ in memory.values()],
                "VmHWM MB": [peak for _, peak in memory.values()],
                "VmRSS MB after restarts": [now for now, _ in reloaded.values()],
                "created in s": created_s,
                **shape,
            },
        ),
        Row(
            f"restart of a killed quorum node with {partitions:,} partitions",
            max(restart_s),
            "s",
            Bar("<=", 10),
            {"start to all applied, s": [round(each, 3) for each in restart_s], **shape},
            "the worst; from the start of the process, snapshot and journal",
        ),
    ]


async def _create_many(cluster: QuorumCluster, sizes: Sizes, tick: Callable[[], None]) -> float:
    controller = cluster.nodes[await cluster.wait_for_controller()].address
    async with cluster.client() as client:
        # Nobody is fenced when the sessions end with this function.
        await _configure(client, _HOUR_MS, _HOUR_MS)
        async with fake_brokers(client, controller, 6):
            begin = time.perf_counter()
            for number in range(sizes.many_topics):
                await client.do(_placed(f"topic-{number}", sizes.partitions_per_topic))
                tick()
            created_s = time.perf_counter() - begin
        # Until every node has a snapshot of all of them, and some entries after it.
        complete = (await client.do(Changes().next())).version
        async with asyncio.timeout(120):
            while any(status.snapshot_version < complete for status in (await cluster.statuses()).values()):
                await client.do(Changes().next())
        for _ in range(5):
            await client.do(Changes().next())
    return created_s


async def _restarts(cluster: QuorumCluster, restarts: int, tick: Callable[[], None]) -> list[float]:
    """Followers only, in turn: brokers that exist for one controller only would be fenced by the next."""
    taken_s = []
    controller = await cluster.wait_for_controller()
    followers = [name for name in cluster.nodes if name != controller]
    for number in range(restarts):
        name = followers[number % len(followers)]
        statuses = (await cluster.statuses()).values()
        await cluster.kill(name)
        begin = time.perf_counter()
        await cluster.start(name)
        await _caught_up(cluster, name, statuses)
        taken_s.append(time.perf_counter() - begin)
        tick()
    return taken_s


def _memory_mb(pid: int) -> tuple[float, float]:
    """Resident now, and at most so far."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, peak = (int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return round(now, 1), round(peak, 1)


# Operations


async def _configure(client: QuorumClient, session_timeout_ms: int, grace_ms: int) -> None:
    values = {"broker.session.timeout.ms": str(session_timeout_ms), "broker.reconnect.grace.ms": str(grace_ms)}
    config = cluster_pb2.AlterConfigOperation(resource=metadata_pb2.CONFIG_RESOURCE_CLUSTER, set=values)
    await client.do(cluster_pb2.Operation(alter_config=config))


async def _each(client: QuorumClient, operations: list[cluster_pb2.Operation]) -> None:
    for operation in operations:
        await client.do(operation)


def _placed(name: str, partitions: int) -> cluster_pb2.Operation:
    topic = cluster_pb2.CreateTopicOperation(name=name, partitions=partitions, replication_factor=3)
    return cluster_pb2.Operation(create_topic=topic)


def _led_by_first(name: str, partitions: int) -> cluster_pb2.Operation:
    by_hand = [cluster_pb2.ReplicaList(replicas=[1, 2, 3])] * partitions
    return cluster_pb2.Operation(create_topic=cluster_pb2.CreateTopicOperation(name=name, assignments=by_hand))


def _deletion(name: str) -> cluster_pb2.Operation:
    return cluster_pb2.Operation(delete_topic=cluster_pb2.DeleteTopicOperation(name=name))


def _percentile(values: list[float], share: int) -> float:
    """The smallest value that so many percent do not exceed."""
    return sorted(values)[math.ceil(len(values) * share / 100) - 1]


# Each with the words that `--only` looks at.
MEASURES: dict[str, Callable[[Lab], list[Row]]] = {
    "latency (one change at a time against ZooKeeper)": latency,
    "throughput (many clients against ZooKeeper)": throughput,
    "failover (kill -9 of the controller)": failover,
    "fencing (a broker that leads everything)": fencing,
    "topic creation (1,000 partitions)": topic_creation,
    "many partitions (memory, snapshot, restart)": many_partitions,
}


def run(
    data: Path,
    *,
    quick: bool,
    large_bytes: int | None,  # noqa: ARG001 - for suites with a large log
    slices: int | None,
    only: str,
    reporter: Reporter,
) -> list[Row]:
    """Run the measures whose name holds ``only``; files go to ``data``, which the caller removes."""
    sizes = Sizes.quick() if quick else Sizes()
    if slices is not None:
        sizes = replace(sizes, rounds=min(sizes.rounds, slices))
    lab = Lab(data, sizes, reporter)
    try:
        return [row for name, work in MEASURES.items() if only.lower() in name.lower() for row in work(lab)]
    except NotReady as error:
        sys.exit(str(error))
