"""Changes of metadata from many tasks while the quorum is hurt, with a record of what each of them was told.

An outcome is ok, failed or **unknown**. `QuorumWorkload.violations` holds the record against the final state: what was
answered is there, what was refused is not, nothing was done twice, and no answer was older than an answer that had been
given before the question.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from lograft.chaos.quorum_cluster import QuorumCluster, fingerprint, watching
from lograft.contract.errors import LogError, Outcome, UnknownName
from lograft.metadata_quorum.client import QuorumClient, StateFollower
from lograft.metadata_quorum.core.model import ClusterState
from lograft.v1 import cluster_pb2, metadata_pb2

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


@dataclass(slots=True)
class _Record:
    name: str
    outcome: str
    version: int = 0
    # The newest answer that anybody had when this was asked.
    after: int = 0
    error: LogError | None = None


class QuorumWorkload:
    """Runs in the background between `__aenter__` and `finish`."""

    def __init__(
        self, cluster: QuorumCluster, *, tasks: int = 4, timeout_s: float = 5.0, pause_s: float = 0.005
    ) -> None:
        """``timeout_s`` is the patience of a client with one change; ``pause_s`` the time between two changes."""
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._task_count = tasks
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[QuorumClient] = []
        self._stopping = False
        self._answered = 0
        # One per change of a quota with a name of its own, and one per rule that was created and deleted again.
        self.quotas: list[_Record] = []
        self.acls: list[tuple[_Record, _Record | None]] = []
        self.followers = [StateFollower() for _ in cluster.nodes]
        self.problems: list[str] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # Two tasks to a client: what one of them meets must not be told to the other.
        self._clients = [self._cluster.client(timeout_s=self._timeout_s) for _ in range((self._task_count + 1) // 2)]
        self._tasks = [loop.create_task(self._write(number)) for number in range(self._task_count)]
        self._tasks += [loop.create_task(self._watch(number)) for number in range(len(self.followers))]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients))

    @property
    def ok(self) -> int:
        """How many changes were answered."""
        return sum(record.outcome == OK for record in self.quotas)

    async def progress(self, changes: int = 20, timeout_s: float = 30.0) -> None:
        """Wait until so many more changes were answered."""
        wanted = self.ok + changes
        async with asyncio.timeout(timeout_s):
            while self.ok < wanted:
                self._raise_if_broken()
                await asyncio.sleep(0.01)

    async def finish(self) -> None:
        """Let the writers end, then check everything on every node that runs. Raises `AssertionError`."""
        self._stopping = True
        await asyncio.gather(*self._tasks[: self._task_count])
        final = await self._cluster.equal_states()
        await self._catch_up(final)
        found = self.violations(final.state)
        if found:
            raise AssertionError("\n".join(found[:20]))

    async def _catch_up(self, final: StateFollower) -> None:
        """Those that watched all the time, through every failover, hold what the nodes hold."""
        async with asyncio.timeout(30):
            for number, follower in enumerate(self.followers):
                while follower.state.version < final.state.version:
                    self._raise_if_broken()
                    await asyncio.sleep(0.01)
                self._tasks[self._task_count + number].cancel()
        for number, follower in enumerate(self.followers):
            # One that is ahead by an election has nothing to be compared with.
            if follower.state.version == final.state.version and fingerprint(follower) != fingerprint(final):
                self.problems.append(f"watcher {number} holds another state than the nodes")

    def _raise_if_broken(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    # Writing

    async def _write(self, number: int) -> None:
        client = self._clients[number // 2]
        count = 0
        while not self._stopping:
            name = f"w{number}-{count}"
            count += 1
            if count % 4:
                quota = cluster_pb2.AlterQuotaOperation(
                    entity=metadata_pb2.QuotaEntity(user=name), set={"request_rate": count}
                )
                self.quotas.append(await self._do(client, name, cluster_pb2.Operation(alter_quota=quota)))
            else:
                await self._create_and_delete(client, name)
            await asyncio.sleep(self._pause_s)

    async def _create_and_delete(self, client: QuorumClient, name: str) -> None:
        """A deletion is not idempotent: doing it twice shows as a refusal."""
        acl = metadata_pb2.Acl(
            principal=f"user:{name}",
            resource=metadata_pb2.ACL_RESOURCE_TOPIC,
            resource_name=name,
            pattern=metadata_pb2.ACL_PATTERN_LITERAL,
            operation=metadata_pb2.ACL_OPERATION_READ,
        )
        created = await self._do(
            client, name, cluster_pb2.Operation(create_acl=cluster_pb2.CreateAclOperation(acl=acl))
        )
        deleted = None
        if created.outcome == OK:
            deleted = await self._do(
                client, name, cluster_pb2.Operation(delete_acl=cluster_pb2.DeleteAclOperation(acl=acl))
            )
            if isinstance(deleted.error, UnknownName):
                self.problems.append(f"deleted twice, or never created: {created} {deleted}")
        self.acls.append((created, deleted))

    async def _do(self, client: QuorumClient, name: str, operation: cluster_pb2.Operation) -> _Record:
        after = self._answered
        # Every second unknown outcome is asked for again, under the same command id.
        for repeat in range(1 + random.randrange(2)):  # noqa: S311 - no secret
            result = (await client.execute(operation))[0]
            if isinstance(result, LogError):
                unknown = result.outcome is Outcome.UNKNOWN or repeat > 0
                record = _Record(name, UNKNOWN if unknown else FAILED, after=after, error=result)
                if not unknown:
                    break
            else:
                record = _Record(name, OK, result.version, after)
                self._answered = max(self._answered, result.version)
                break
        return record

    # Watching

    async def _watch(self, number: int) -> None:
        """Follow the log through all nodes; the version never goes back."""
        follower = self.followers[number]
        async with self._cluster.client() as client:
            while True:
                addresses = list(self._cluster.addresses.values())
                seen = follower.state.version
                with suppress(LogError):
                    async with watching(client, follower, addresses[number % len(addresses)]) as stream:
                        async for _ in stream:
                            if follower.state.version < seen:
                                self.problems.append(f"a watcher went back from {seen} to {follower.state.version}")
                            seen = follower.state.version
                number += 1
                await asyncio.sleep(0.05)

    # Checking

    def violations(self, state: ClusterState) -> list[str]:
        """Everything that should not be."""
        found = list(self.problems)
        users = {key.user for key in state.quotas}
        rules = {acl.resource_name for acl in state.acls}
        for record in self.quotas:
            if record.outcome == OK and record.name not in users:
                found.append(f"lost: {record}")
            if record.outcome == FAILED and record.name in users:
                found.append(f"refused, and there all the same: {record}")
        for created, deleted in self.acls:
            there = created.name in rules
            if there and (created.outcome == FAILED or (deleted is not None and deleted.outcome == OK)):
                found.append(f"there all the same: {created} {deleted}")
            if not there and created.outcome == OK and (deleted is None or deleted.outcome == FAILED):
                found.append(f"lost: {created} {deleted}")
        every = [*self.quotas, *(record for pair in self.acls for record in pair if record is not None)]
        found += [
            f"answered as of the past: {each}" for each in every if each.outcome == OK and each.version <= each.after
        ]
        return found

    def summary(self) -> str:
        """For the output of a test."""
        outcomes = [record.outcome for record in self.quotas]
        return ", ".join(f"{outcomes.count(each)} {each}" for each in (OK, FAILED, UNKNOWN))
