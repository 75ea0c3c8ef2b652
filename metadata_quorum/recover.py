"""The way back after the majority of the quorum is lost **for good**: one survivor becomes a quorum of one.

Raft cannot do this, and rightly so: whatever only the lost nodes had is gone, and nobody can tell what that was. An
operator decides it, with the node stopped. The survivor's whole log becomes the truth, also entries of which it did not
know whether they were committed: an answered change is in the log of a majority, so throwing away anything would make
the loss larger. Of several survivors the one with the largest (last term, last index) has the most.

Three things must not happen afterwards.

*Old nodes come back and mix with the new quorum.* A voter is a name and a directory id, and streams between nodes are
opened from one full id to another. The survivor gets a new directory id, so the old nodes dial somebody who does not
exist any more and are refused, and the survivor knows none of them. It could still happen that enough of them come back
to elect a leader among themselves: two clusters under one cluster id. Nothing on this node can prevent that, hence the
rule that no old node may ever run again.

*A number is given out twice.* Lost entries may have raised any counter. A broker or a watcher may have seen version 120
where this log ends at 110: when the new quorum reaches 120 it would take the two for the same, and keep what never
happened. Likewise one leader epoch with two leaders, one block of producer ids with two owners, one controller epoch
with two controllers. So all of them jump ahead, by more than the lost nodes can have used. A watcher that is behind the
jump, as all are, is sent the whole state.

*Half a recovery runs.* The new directory id is written first: from then on the old voter does not exist, and the new
one is no member of anything. Then the term. The snapshot comes last, and replacing it is the one step that makes the
node a quorum of one. It stands for the whole log: an entry about the members, appended to the log as it is, would let
the old numbers go on. The journal is fitted to it as after any installed snapshot. A recovery that was interrupted is
done again from the start.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf.message import DecodeError

from lograft.contract.disk import Disk
from lograft.contract.errors import DirectoryUnusable, MembershipRefused, StorageCorrupted
from lograft.contract.ids import random_id
from lograft.contract.small_files import Kind, write_small_file
from lograft.metadata_quorum.core.apply import apply_entry, skip_entry, unsupported
from lograft.metadata_quorum.core.model import ClusterState, Member, Partition
from lograft.metadata_quorum.core.overlap import Entry
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.metadata_quorum.identity import NODE_META, Identity, members_to_proto
from lograft.metadata_quorum.journal import FIRST_ENTRY, JOURNAL, NO_OP, Journal
from lograft.metadata_quorum.snapshot_file import SNAPSHOT, load_snapshot, write_snapshot
from lograft.v1 import metadata_pb2, quorum_pb2

# More than nodes can have committed, or given out, after the last thing that the survivor heard from them.
INDEX_JUMP = 1_000_000
TERM_JUMP = 1_000
PARTITION_EPOCH_JUMP = 1_000
BROKER_EPOCH_JUMP = 1_000_000
PRODUCER_ID_JUMP = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a stopped node stands."""

    name: str
    directory_id: str
    cluster_id: str
    # The newest term it has heard of.
    term: int
    last_index: int
    last_term: int
    # The voters by its log, committed or not.
    members: tuple[Member, ...]
    brokers: int
    topics: int
    partitions: int
    # Of a write that a crash interrupted; nobody was ever told of it.
    cut_bytes: int


class StoppedNode:
    """The files of a node that does not run, kept from running while this is open. Made by `stopped_node`."""

    def __init__(self, identity: Identity, disk: Disk) -> None:
        """Read everything; raises `StorageCorrupted` if any of it is damaged. Changes nothing."""
        self._identity = identity
        self._directory = identity.directory
        self._disk = disk
        snapshot = self._directory / SNAPSHOT
        self._state = load_snapshot(snapshot) if snapshot.exists() else ClusterState(version=FIRST_ENTRY.index)
        # What the snapshot stands for, if there is one.
        self._base = _last_entry_of(self._state)
        journal = self._replay()
        self.standing = Standing(
            name=identity.name,
            directory_id=identity.directory_id,
            cluster_id=self._state.cluster_id,
            term=max(journal.term, journal.entries[-1].term),
            last_index=journal.last_index,
            last_term=journal.entries[-1].term,
            members=self._state.members,
            brokers=len(self._state.brokers),
            topics=len(self._state.topics),
            partitions=sum(len(topic.partitions) for topic in self._state.topics.values()),
            cut_bytes=journal.cut_bytes,
        )

    def _replay(self) -> Journal:
        """Bring the state to the last entry of the log, and return the log."""
        state = self._state
        with tempfile.TemporaryDirectory(prefix="lograft-recover-") as copy:
            # Opening writes a journal anew: here a copy, for looking must not change anything.
            shutil.copyfile(self._directory / JOURNAL, Path(copy) / JOURNAL)
            try:
                journal = Journal(Path(copy), self._disk, placeholder=self._base)
            except StorageCorrupted as error:
                raise StorageCorrupted(str(self._directory / JOURNAL), error.position, error.problem) from None
            journal.close()
        for entry in journal.from_index(state.version + 1):
            if entry.command[:1] == NO_OP:
                skip_entry(state, version=entry.index, term=entry.term)
                continue
            try:
                changes = metadata_pb2.MetadataEntry.FromString(entry.command[1:])
            except DecodeError:
                problem = f"entry {entry.index} cannot be read"
                raise StorageCorrupted(str(self._directory / JOURNAL), 0, problem) from None
            too_new = unsupported(changes)
            if too_new is not None:
                raise too_new
            apply_entry(state, changes, version=entry.index, term=entry.term)
        return journal

    def check(self) -> None:
        """Raise `MembershipRefused` if nothing can come of recovering this node."""
        if not self.standing.members:
            # Voters are the first thing a first controller commits, before any change is answered.
            raise MembershipRefused(f"{self.standing.name} has never been part of a working quorum: nothing to recover")
        if self.standing.name not in {member.name for member in self.standing.members}:
            names = ", ".join(member.name for member in self.standing.members)
            raise MembershipRefused(f"{self.standing.name} is not a member by its own log (those are {names})")

    def recover(self, address: str) -> Standing:
        """Make the node a quorum of one that others reach at ``address``; returns where it stands then.

        See the module for the order of the steps. `StoppedNode` is of no use afterwards.
        """
        self.check()
        old = self.standing
        me = Member(old.name, random_id(), address)
        term, state = old.term + TERM_JUMP, self._state
        meta = quorum_pb2.NodeMeta(name=me.name, directory_id=me.directory_id, first_members=members_to_proto((me,)))
        write_small_file(self._disk, self._directory / NODE_META, Kind.NODE_META, meta)

        journal = Journal(self._directory, self._disk, placeholder=self._base)
        try:
            journal.setCurrentTerm(term, None)
            journal.rewrite()
            _jump_ahead(state, term=term, members=(me,))
            write_snapshot(self._disk, self._directory, encode_pieces(capture(state)))
            journal.restart_at(_last_entry_of(state))
        finally:
            journal.close()
        return replace(
            old,
            directory_id=me.directory_id,
            term=term,
            last_index=state.version,
            last_term=term,
            members=(me,),
            cut_bytes=0,
        )


@contextmanager
def stopped_node(directory: Path, name: str, disk: Disk | None = None) -> Iterator[StoppedNode]:
    """Open the directory of a node that does not run; raises `DirectoryLocked` if it does."""
    disk = disk or Disk()
    if not (directory / JOURNAL).exists() and not (directory / NODE_META).exists():
        # Opening it would make a new node there.
        raise DirectoryUnusable(str(directory), "it holds no quorum node")
    identity = Identity(directory, name, disk)
    try:
        yield StoppedNode(identity, disk)
    finally:
        identity.release()


def _last_entry_of(state: ClusterState) -> Entry:
    return Entry(NO_OP, state.version, state.term)


def _jump_ahead(state: ClusterState, *, term: int, members: tuple[Member, ...]) -> None:
    """Leave room for every number that the lost nodes may have given out."""
    skip_entry(state, version=state.version + INDEX_JUMP, term=term)
    state.members = members
    state.next_broker_epoch += BROKER_EPOCH_JUMP
    state.next_producer_id += PRODUCER_ID_JUMP
    # Most partitions look like another one, and are one object.
    moved: dict[Partition, Partition] = {}
    for topic in state.topics.values():
        for number, partition in enumerate(topic.partitions):
            ahead = moved.get(partition)
            if ahead is None:
                ahead = moved[partition] = partition._replace(
                    leader_epoch=partition.leader_epoch + PARTITION_EPOCH_JUMP,
                    partition_epoch=partition.partition_epoch + PARTITION_EPOCH_JUMP,
                )
            topic.partitions[number] = ahead
