"""What must never happen, whatever the network and the machines do. Shares no code with what it watches.

Records count as committed when a leader's high watermark passes them: from then on whoever begins to lead must hold
them, in the same place, unless somebody asked for an unclean election of that partition.
"""

from bisect import bisect_right
from dataclasses import replace
from typing import NamedTuple

from lograft.metadata_quorum.core import invariants, snapshot
from lograft.metadata_quorum.core.apply import apply_entry
from lograft.metadata_quorum.core.model import ClusterState, PartitionKey, Topic
from lograft.v1 import metadata_pb2


class Violation(Exception):
    """A promise was broken."""


class Record(NamedTuple):
    """One record: who wrote it first, and which."""

    leader_epoch: int
    number: int


class Grant(NamedTuple):
    """Who was given a leader epoch, in which incarnation."""

    broker_id: int
    broker_epoch: int


def snapshot_bytes(state: ClusterState) -> bytes:
    """The state as every node would write it."""
    return b"".join(snapshot.encode_pieces(snapshot.capture(state)))


class Oracle:
    """Sees every committed entry first, and judges what everybody else makes of it."""

    def __init__(self) -> None:
        self.truth = ClusterState()
        self.results: list[list[metadata_pb2.ChangeResult]] = []
        self._snapshots: list[int] = []
        self._granted: dict[tuple[PartitionKey, int], Grant] = {}
        self._answers: dict[bytes, bytes] = {}
        self._committed: dict[PartitionKey, list[Record]] = {}
        # In which leader epoch each of them was committed.
        self._committed_in: dict[PartitionKey, list[int]] = {}
        # Partitions that may have lost records because somebody wished it.
        self.tainted: set[PartitionKey] = set()

    # The metadata

    def commit(self, entry: metadata_pb2.MetadataEntry, term: int) -> list[metadata_pb2.ChangeResult]:
        """An entry has its place in the log."""
        before = _kept(self.truth)
        results = apply_entry(
            self.truth, entry, version=self.truth.version + 1, term=max(term, self.truth.term), on_bug=_on_bug
        )
        if entry.controller_epoch < before.controller_epoch and any(not r.HasField("rejected") for r in results):
            raise Violation(f"an entry of the former controller {entry.controller_epoch} was applied")
        found = invariants.violations(self.truth, before)
        if found:
            raise Violation(f"entry {self.truth.version}: {found}")
        self.results.append(results)
        self._snapshots.append(hash(snapshot_bytes(self.truth)))
        for change, result in zip(entry.changes, results, strict=True):
            if result.HasField("applied"):
                self._note_unclean(change)
        self._note_grants(before)
        return results

    def same(self, who: str, state: ClusterState) -> None:
        """Somebody has applied the log up to some version."""
        if state.version and hash(snapshot_bytes(state)) != self._snapshots[state.version - 1]:
            raise Violation(f"{who} has another state at version {state.version}")

    def answered(self, command_id: bytes, result: metadata_pb2.ChangeResult) -> None:
        """Somebody was told that a command with an id was applied: every time in the same words."""
        if command_id and result.HasField("applied"):
            told = result.SerializeToString(deterministic=True)
            if self._answers.setdefault(command_id, told) != told:
                raise Violation(f"a repeated command was answered differently: {result}")

    def _note_unclean(self, change: metadata_pb2.Change) -> None:
        kind = change.WhichOneof("kind") or ""
        parts = getattr(getattr(change, kind), "partitions", ())
        if kind == "change_partition":
            parts = (change.change_partition,)
        for part in parts:
            if part.unclean:
                self.tainted.add(PartitionKey(part.topic_id, part.partition))

    def _note_grants(self, before: ClusterState) -> None:
        for topic in self.truth.topics.values():
            former = before.topics.get(topic.topic_id)
            for number, partition in enumerate(topic.partitions):
                if partition.leader is None or (
                    former is not None and number < len(former.partitions) and former.partitions[number] is partition
                ):
                    continue
                key = PartitionKey(topic.topic_id, number)
                grant = Grant(partition.leader, self.truth.brokers[partition.leader].broker_epoch)
                if self._granted.setdefault((key, partition.leader_epoch), grant) != grant:
                    former_grant = self._granted[key, partition.leader_epoch]
                    raise Violation(f"{key} has two leaders in one epoch: {former_grant} and {partition}, {grant}")

    # The records

    def begins_to_lead(self, key: PartitionKey, leader_epoch: int, grant: Grant, log: list[Record]) -> None:
        """A broker takes itself for the leader from here on; perhaps late, when others have led after it."""
        granted = self._granted.get((key, leader_epoch))
        if granted != grant:
            raise Violation(f"{grant} leads {key} in epoch {leader_epoch}, which belongs to {granted}")
        if key not in self.tainted:
            before = bisect_right(self._committed_in.get(key, []), leader_epoch)
            committed = self._committed.get(key, [])[:before]
            if log[: len(committed)] != committed:
                raise Violation(
                    f"{grant} leads {key} in epoch {leader_epoch} without committed records: "
                    f"has {log[: len(committed)][-5:]} ({len(log)}), committed {committed[-5:]} ({len(committed)})"
                )

    def high_watermark(
        self, key: PartitionKey, leader_epoch: int, log: list[Record], end: int, holders: dict[int, list[Record]]
    ) -> None:
        """A leader answers producers up to ``end``. ``holders``: the logs of those who may be elected next."""
        committed = self._committed.setdefault(key, [])
        if key in self.tainted:
            return
        shared = min(end, len(committed))
        if log[:shared] != committed[:shared]:
            raise Violation(f"{key}: two leaders committed different records before {shared}")
        fresh, epochs = log[len(committed) : end], self._committed_in.setdefault(key, [])
        if fresh and epochs and epochs[-1] > leader_epoch:
            raise Violation(f"{key}: the leader of epoch {leader_epoch} commits after one of epoch {epochs[-1]}")
        committed.extend(fresh)
        epochs.extend([leader_epoch] * len(fresh))
        for broker_id, held in holders.items():
            if held[: len(committed)] != committed:
                raise Violation(f"{key}: broker {broker_id} can be elected and misses committed records ({len(held)})")

    def truncates(self, key: PartitionKey, broker_id: int, log: list[Record], end: int) -> None:
        """A follower cuts its log. What nobody committed may go."""
        committed = self._committed.get(key, [])
        if key not in self.tainted and end < len(committed) and log[end] == committed[end]:
            raise Violation(f"broker {broker_id} cuts committed records of {key} at {end}")

    def committed(self, key: PartitionKey) -> int:
        """How many records of a partition were committed."""
        return len(self._committed.get(key, ()))


def _on_bug(incident: str, bug: Exception) -> None:
    raise Violation(f"{incident}: {bug!r}") from bug


def _kept(state: ClusterState) -> ClusterState:
    """The moment before a change, for comparison: what `apply` changes in place is copied."""
    topics = {
        topic_id: Topic(topic.topic_id, topic.name, topic.created_at_ms, list(topic.partitions))
        for topic_id, topic in state.topics.items()
    }
    return replace(state, brokers=dict(state.brokers), topics=topics)
