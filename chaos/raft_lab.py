"""A quorum in one process: real `RaftMachine`s and journals, with network, disk and time moved by hand.

Every node is driven by the rule of `raft_node`: while its journal is being synced it stands still, and of what its last
step produced only appends have left. Here the end of a sync is an event like any other, so a crash may come before it,
and messages may be lost, kept back, repeated and overtake each other as the caller pleases.

The lab watches what must never happen, after every event: two leaders in a term, a leader without an entry that was
committed, an index that was applied with two different entries, a proposal that was answered and is not in the log.
"""

import errno
import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self
from unittest import mock

from lograft.contract.disk import Disk, is_no_space
from lograft.contract.errors import StorageCorrupted
from lograft.metadata_quorum import raft_machine
from lograft.metadata_quorum.core.apply import skip_entry
from lograft.metadata_quorum.core.model import ClusterState, Member
from lograft.metadata_quorum.core.overlap import Entry
from lograft.metadata_quorum.core.snapshot import StateCopy, capture, encode_pieces
from lograft.metadata_quorum.identity import members_to_proto
from lograft.metadata_quorum.journal import FIRST_ENTRY, MEMBERS, METADATA, NO_OP, Journal
from lograft.metadata_quorum.raft_machine import RaftMachine, RaftTiming, raft_id
from lograft.metadata_quorum.snapshot_file import SNAPSHOT, load_snapshot, write_snapshot
from lograft.v1 import metadata_pb2, quorum_pb2

TICK_S = 0.02
# Small enough that a snapshot of the lab takes several messages.
CHUNK_BYTES = 64


class SafetyBroken(AssertionError):
    """The lab has seen something that Raft promises never to happen."""


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """The time, for whoever believes this to be the module ``time``."""
        return self.now


class LabDisk(Disk):
    """Syncs nothing, as the lab itself decides what a crash loses; and it may be full."""

    full = False

    def write_some(self, file: int, buffers: object, position: int, flags: int) -> int:  # noqa: ARG002
        """Write, if there is space."""
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on the lab's disk")
        return super().write_some(file, buffers, position, 0)  # type: ignore[arg-type]

    def sync_file(self, file: int) -> None:
        """Not needed."""

    def sync_directory(self, path: Path) -> None:
        """Not needed."""


class LabNode:
    """One node: what survives a crash is its directory, the rest is made by `start`."""

    def __init__(self, lab: "RaftLab", member: Member, first_members: tuple[Member, ...]) -> None:
        self.lab = lab
        self.member = member
        self.id = raft_id(member)
        self.directory = lab.folder / self.id.replace(":", "-")
        self.directory.mkdir(exist_ok=True)
        self.disk = LabDisk()
        self.running = False
        self._first_members = first_members
        self.start()

    def start(self) -> None:
        """Open the files, as `RaftNode` does."""
        snapshot = self.directory / SNAPSHOT
        self.state = load_snapshot(snapshot) if snapshot.exists() else ClusterState(version=FIRST_ENTRY.index)
        self.snapshot_version = self.state.version if snapshot.exists() else 0
        self.journal = Journal(
            self.directory,
            self.disk,
            keep_from=self.state.version - self.lab.history_entries,
            placeholder=Entry(NO_OP, self.state.version, self.state.term),
        )
        self.machine = RaftMachine(
            self.member,
            journal=self.journal,
            applied=self.state.version,
            members=self.state.members or self._first_members,
            snapshot_path=snapshot,
            apply=self._apply,
            timing=self.lab.timing,
            seed=self.lab.chance.randrange(1 << 30),
        )
        self.machine.on_snapshot_chunk = self._take_chunk
        self.inbox: deque[tuple[str, bytes]] = deque()
        self._held: list[tuple[str, quorum_pb2.ExchangeRequest]] = []
        # Being written, and the votes in it.
        self.block: bytes | None = None
        self._votes: list[quorum_pb2.HardState] = []
        # Our own, written but not yet taken note of: version and voters.
        self.own_snapshot: tuple[int, tuple[Member, ...]] | None = None
        self._incoming: tuple[str, bytearray] | None = None
        self._complete: tuple[str, bytes] | None = None
        self.running = True
        self._stored()
        for node in self.lab.nodes.values():
            if node is not self and node.running:
                node.machine.connected(self.id)
                self.machine.connected(node.id)

    def crash(self, *, written: int = 0) -> None:
        """Lose everything in memory. Of a block that was being written the first ``written`` bytes are on disk."""
        self.running = False
        self.machine.close()
        self.journal.close()
        if self.block is not None and written:
            with self.journal.path.open("r+b") as file:
                file.seek(self.journal.size)
                file.write(self.block[:written])
        for node in self.lab.nodes.values():
            if node.running:
                node.machine.disconnected(self.id)
                node.machine.leader_link_broken(self.id)

    # Steps

    def step(self) -> None:
        """Take in what has arrived, and look at the clock. Does nothing while a block is being written."""
        if not self.running or self.block is not None:
            return
        if self._complete is not None:
            self._install(*self._complete)
        while self.inbox and self._complete is None:
            sender, message = self.inbox.popleft()
            self.machine.receive(sender, quorum_pb2.ExchangeRequest.FromString(message))
        self.machine.tick()
        # Sets of the library have no order that a seed repeats.
        outbox = sorted(self.machine.outbox, key=lambda sent: sent[0])
        self.machine.outbox.clear()
        self.lab.look_at(self)
        if not self.journal.dirty:
            self._send(outbox)
            return
        self._send(sent for sent in outbox if sent[1].HasField("append_entries"))
        self._held = [sent for sent in outbox if not sent[1].HasField("append_entries")]
        self._votes = [record.hard_state for record in self.journal.pending if record.HasField("hard_state")]
        self.block = self.journal.take_block()

    def sync(self) -> bool:
        """The block that is being written is on disk, and whatever waited for it goes out. False if it is full."""
        if self.running and self.block is not None:
            try:
                self.journal.write_block(self.block)
            except OSError as error:
                if not is_no_space(error):
                    raise
                return False
            self.block = None
            self._stored()
            self._send(self._held)
            self._held = []
        return True

    def _stored(self) -> None:
        """The disk holds what the journal holds: keep a copy, to compare with what others believe."""
        self.stored_log = self.journal.entries.copy()
        self.stored_term = self.journal.term
        for state in (*self._votes, quorum_pb2.HardState(term=self.journal.term, voted_for=self.journal.voted_for)):
            if state.voted_for:
                self.lab.voted(self, state)
        self._votes = []

    def _send(self, messages: Iterable[tuple[str, quorum_pb2.ExchangeRequest]]) -> None:
        for receiver, message in messages:
            self.lab.send(self.id, receiver, message.SerializeToString())

    def _apply(self, entry: Entry) -> int:
        self.lab.applied(self, entry)
        skip_entry(self.state, version=entry.index, term=entry.term)
        self.state.cluster_id = self.lab.digest_at(entry.index)
        if entry.command[:1] == MEMBERS:
            changes = metadata_pb2.MetadataEntry.FromString(entry.command[1:]).changes
            self.state.members = tuple(
                Member(m.name, m.directory_id, m.address) for m in changes[0].set_quorum_members.members
            )
        return entry.index

    # Snapshots

    def write_own_snapshot(self) -> None:
        """First half: the file. `RaftNode` may do other things before the second."""
        if self.running and self.block is None and self.own_snapshot is None and self._complete is None:
            self._incoming = None
            copy: StateCopy = capture(self.state)
            write_snapshot(self.disk, self.directory, encode_pieces(copy, piece_bytes=CHUNK_BYTES))
            self.own_snapshot = copy.version, self.state.members or self._first_members

    def trim_to_own_snapshot(self) -> None:
        """Second half: the journal."""
        if self.running and self.block is None and self.own_snapshot is not None:
            version, members = self.own_snapshot
            self.own_snapshot = None
            self.snapshot_version = version
            self.machine.snapshot_taken(version, members)
            self.journal.trim(version - self.lab.history_entries)
            self._stored()

    def _take_chunk(self, sender: str, chunk: quorum_pb2.SnapshotChunk) -> None:
        if chunk.first:
            self._incoming = None if self.own_snapshot is not None else (sender, bytearray())
        if self._incoming is None or self._incoming[0] != sender:
            return
        self._incoming[1].extend(chunk.data)
        if chunk.last:
            self._complete = sender, bytes(self._incoming[1])
            self._incoming = None

    def _install(self, sender: str, data: bytes) -> None:
        self._complete = None
        path = self.directory / "incoming"
        path.write_bytes(data)
        try:
            state = load_snapshot(path)
        except StorageCorrupted:
            self.lab.refused_snapshots += 1
            return
        if state.version > self.state.version and not self.journal.holds(state.version, state.term):
            write_snapshot(self.disk, self.directory, encode_pieces(capture(state)))
            if self.lab.chance.random() < self.lab.crash_in_install:
                self.crash()
                self.start()
                return
            self.journal.restart_at(Entry(NO_OP, state.version, state.term))
            self._stored()
            self.state, self.snapshot_version = state, state.version
            self.lab.installed(self)
            self.machine.snapshot_installed(sender, self.journal.entries[0], state.members or self._first_members)
        elif self.journal.holds(state.version, state.term):
            self.machine.confirm_snapshot(sender, state.version)


class RaftLab:
    """The nodes, the messages between them, and what has been promised so far. Use it as a context manager."""

    def __init__(
        self,
        folder: Path,
        names: Iterable[str] = ("q1", "q2", "q3"),
        *,
        seed: int = 0,
        history_entries: int = 10_000,
        timing: RaftTiming | None = None,
    ) -> None:
        self.folder = folder
        self.chance = Random(seed)  # noqa: S311 - a seed, so that a run can be repeated
        self.history_entries = history_entries
        self.timing = timing or RaftTiming()
        self.clock = Clock()
        self.nodes: dict[str, LabNode] = {}
        # Sender, receiver, message, in the order in which they were sent.
        self.network: list[tuple[str, str, bytes]] = []
        # Directed links that carry nothing.
        self.cut: set[tuple[str, str]] = set()
        self.committed: dict[int, Entry] = {FIRST_ENTRY.index: FIRST_ENTRY}
        self.leaders: dict[int, str] = {}
        # Term and voter: whom it voted for, once that is on its disk.
        self.votes: dict[tuple[int, str], str] = {}
        # Payload of each proposal that was answered: its index, or None if it was certainly not applied.
        self.answers: dict[bytes, int | None] = {}
        self.refused_snapshots = 0
        self.installed_snapshots = 0
        self.crash_in_install = 0.0
        self._digests = {FIRST_ENTRY.index: ""}
        self._changes = 0
        self._names = tuple(names)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        patches = (
            mock.patch.object(raft_machine, "time", self.clock),
            mock.patch.object(raft_machine, "SNAPSHOT_CHUNK_BYTES", CHUNK_BYTES),
            mock.patch("pysyncobj.syncobj.monotonicTime", self.clock.monotonic),
            mock.patch("pysyncobj.syncobj.random", Random(self.chance.random())),  # noqa: S311
        )
        for patch in patches:
            self._stack.enter_context(patch)
        members = tuple(Member(name, f"d{name}", f"{name}.test:1") for name in self._names)
        for member in members:
            self.add(member, members)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.machine.close()
            node.journal.close()
        self._stack.close()

    def add(self, member: Member, first_members: tuple[Member, ...] = ()) -> LabNode:
        """Start another node; without first members it waits to be added."""
        node = LabNode(self, member, first_members)
        self.nodes[node.id] = node
        return node

    # By name, which tests find easier

    def __getitem__(self, name: str) -> LabNode:
        """The newest node of this name."""
        return next(node for node in reversed(self.nodes.values()) if node.member.name == name)

    @property
    def leader(self) -> LabNode | None:
        """The running node that leads in the highest term."""
        leading = [node for node in self.nodes.values() if node.running and node.machine.leading]
        return max(leading, key=lambda node: node.machine.term, default=None)

    def cut_links(self, *links: tuple[str, str]) -> None:
        """From now on nothing that the first of a pair sends reaches the second."""
        self.cut |= {(self[sender].id, self[receiver].id) for sender, receiver in links}

    # The network

    def send(self, sender: str, receiver: str, message: bytes) -> None:
        """Put a message on its way, unless the link is cut."""
        if (sender, receiver) not in self.cut and receiver in self.nodes:
            self.network.append((sender, receiver, message))

    def deliver(self, place: int = 0, *, keep: bool = False) -> None:
        """Deliver the message at this place; with ``keep`` it will arrive once more."""
        sender, receiver, message = self.network[place] if keep else self.network.pop(place)
        node = self.nodes[receiver]
        if node.running and (sender, receiver) not in self.cut:
            node.inbox.append((sender, message))

    def take(self, kind: str, sender: str | None = None) -> list[tuple[str, str, bytes]]:
        """Take the messages of a kind off the network."""
        found = [
            sent
            for sent in self.network
            if (sender is None or sent[0] == self[sender].id)
            and quorum_pb2.ExchangeRequest.FromString(sent[2]).WhichOneof("kind") == kind
        ]
        self.network = [sent for sent in self.network if sent not in found]
        return found

    # Good days

    def round(self) -> None:
        """Everything that is on its way arrives, every node steps and syncs, and the clock goes on."""
        while self.network:
            self.deliver()
        for node in list(self.nodes.values()):
            node.step()
            node.sync()
        self.clock.now += TICK_S

    def run_until(self, reached: Callable[[], object], *, rounds: int = 500) -> None:
        """Good days until something is so."""
        for _ in range(rounds):
            if reached():
                return
            self.round()
        raise AssertionError(f"not reached in {rounds} rounds: {self.describe()}")

    def elect(self, name: str | None = None) -> LabNode:
        """Good days until there is a leader that has committed an entry of its own; this one, if named."""
        if name is not None:
            chosen = self[name]
            others = [node for node in self.nodes.values() if node is not chosen]
            self.run_until(lambda: self.leader is not None)
            if self.leader is not chosen:
                self.run_until(lambda: self.leader is None or self.leader.machine.transfer_to(chosen.id))
            self.run_until(lambda: self.leader is chosen and not any(node.machine.leading for node in others))
        self.run_until(lambda: self.leader is not None and self.claimed(self.leader))
        return next(node for node in [self.leader] if node is not None)

    def claimed(self, node: LabNode) -> bool:
        """Whether a leader has committed and applied an entry of its own term: only then it may change the voters."""
        machine = node.machine
        return machine.leading and node.state.term == machine.term

    def commit(self, payload: bytes) -> int:
        """Good days until a proposal to the leader is answered; its index."""
        self.propose(self.elect(), payload)
        self.run_until(lambda: payload in self.answers)
        index = self.answers[payload]
        if index is None:
            raise AssertionError(f"{payload!r} was refused: {self.describe()}")
        return index

    def settle(self) -> None:
        """Good days until every running voter has applied the same."""
        running = [node for node in self.nodes.values() if node.running]

        def settled() -> bool:
            leader = self.leader
            if leader is None or not self.claimed(leader):
                return False
            voters = {raft_id(member) for member in leader.machine.members}
            return all(node.machine.applied_index == leader.journal.last_index for node in running if node.id in voters)

        self.run_until(settled, rounds=1500)

    # Proposals

    def propose(self, node: LabNode, payload: bytes, tag: bytes = METADATA) -> None:
        """Propose to a node; payloads are unique, as an answer is kept by payload."""

        def answered(result: object, applied: bool) -> None:
            if not applied:
                self.answers[payload] = None
                return
            index = result if isinstance(result, int) else 0
            self.answers[payload] = index
            if self.committed[index].command != tag + payload:
                raise SafetyBroken(f"{payload!r} was answered with index {index}, which holds another entry")

        node.machine.propose(tag, payload, answered)

    def propose_members(self, node: LabNode, members: Iterable[Member]) -> bytes:
        """Propose other voters; returns the payload."""
        self._changes += 1
        change = metadata_pb2.Change(
            command_id=b"members %d" % self._changes,
            set_quorum_members=metadata_pb2.SetQuorumMembers(members=members_to_proto(tuple(members))),
        )
        payload = metadata_pb2.MetadataEntry(controller_epoch=node.machine.term, changes=[change]).SerializeToString()
        self.propose(node, payload, MEMBERS)
        return payload

    # What must never happen

    def applied(self, node: LabNode, entry: Entry) -> None:
        """A node applies an entry."""
        if entry.index != node.state.version + 1:
            raise SafetyBroken(f"{node.id} applies {entry.index} after {node.state.version}")
        if entry.index > node.stored_log[-1].index:
            raise SafetyBroken(f"{node.id} applies {entry.index} and its disk does not hold it")
        known = self.committed.setdefault(entry.index, entry)
        if known != entry:
            raise SafetyBroken(f"{node.id} applies {entry}, and {known} was applied before")
        self.digest_at(entry.index)

    def digest_at(self, index: int) -> str:
        """A fingerprint of everything that was applied up to an index."""
        if index not in self._digests:
            entry = self.committed[index]
            content = self._digests[index - 1].encode() + repr(entry).encode()
            self._digests[index] = hashlib.blake2b(content, digest_size=16).hexdigest()
        return self._digests[index]

    def installed(self, node: LabNode) -> None:
        """A node has taken over a snapshot."""
        self.installed_snapshots += 1
        if self._digests.get(node.state.version) != node.state.cluster_id:
            raise SafetyBroken(f"{node.id} installed a snapshot of {node.state.version} that nobody has applied")

    def voted(self, node: LabNode, vote: quorum_pb2.HardState) -> None:
        """A node's vote is on disk."""
        known = self.votes.setdefault((vote.term, node.id), vote.voted_for)
        if known != vote.voted_for:
            raise SafetyBroken(f"{node.id} votes for {known} and {vote.voted_for} in term {vote.term}")

    def look_at(self, node: LabNode) -> None:
        """After a step of a node."""
        machine, journal = node.machine, node.journal
        if machine.commit_index > journal.last_index:
            raise SafetyBroken(f"{node.id} believes {machine.commit_index} to be committed, beyond its log")
        if machine.applied_index != node.state.version:
            raise SafetyBroken(f"{node.id} has applied {node.state.version} and believes {machine.applied_index}")
        if machine.leading:
            if machine.term not in self.leaders:
                self._look_at_new_leader(node)
            if self.leaders[machine.term] != node.id:
                raise SafetyBroken(f"{node.id} and {self.leaders[machine.term]} both lead in term {machine.term}")
            for member in machine.members:
                self._look_at_match(node, raft_id(member))

    def _look_at_new_leader(self, node: LabNode) -> None:
        machine, journal = node.machine, node.journal
        self.leaders[machine.term] = node.id
        # Its own vote is in the same block as its first entry, if it is alone.
        votes = [m for m in machine.members if self.votes.get((machine.term, raft_id(m))) == node.id]
        if len(votes) * 2 <= len(machine.members) and len(machine.members) > 1:
            raise SafetyBroken(f"{node.id} leads in term {machine.term} with the votes of {votes} only")
        for index in range(journal.first_index + 1, max(self.committed) + 1):
            entry = self.committed[index]
            if index > journal.last_index or journal.entries[index - journal.first_index] != entry:
                raise SafetyBroken(f"{node.id} leads in term {machine.term} without {entry}, which is committed")

    def _look_at_match(self, leader: LabNode, follower_id: str) -> None:
        """What a leader believes to be stored on another node is on that node's disk."""
        match = leader.machine.match_index(follower_id)
        follower = self.nodes[follower_id]
        if follower is leader or follower.stored_term > leader.machine.term:
            return
        first, last = follower.stored_log[0].index, follower.stored_log[-1].index
        if match > last or (
            match >= max(first, leader.journal.first_index)
            and follower.stored_log[match - first].term != leader.journal.term_at(match)
        ):
            raise SafetyBroken(f"{leader.id} believes {follower_id} to hold {match}, and its disk does not")

    def check_answers(self) -> None:
        """At the end: what was answered is in the log once, and what was refused is not."""
        commands = [entry.command[1:] for index, entry in sorted(self.committed.items()) if entry.command != NO_OP]
        if len(commands) != len(set(commands)):
            raise SafetyBroken("a proposal was applied twice")
        for payload, index in self.answers.items():
            if index is None and payload in commands:
                raise SafetyBroken(f"{payload!r} was refused and applied")
            if index is not None and self.committed[index].command[1:] != payload:
                raise SafetyBroken(f"{payload!r} was answered and is not in the log")

    def describe(self) -> str:
        """Every node in a few words."""
        return "; ".join(
            f"{node.id} {'leads' if node.machine.leading else 'follows'} term {node.machine.term} "
            f"log {node.journal.first_index}-{node.journal.last_index} commit {node.machine.commit_index} "
            f"applied {node.machine.applied_index} members {[m.name for m in node.machine.members]}"
            f"{'' if node.running else ' (down)'}{'' if node.block is None else ' (writing)'}"
            for node in self.nodes.values()
        )
