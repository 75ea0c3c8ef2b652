"""Raft, by PySyncObj, behind our own interface and with its hazards guarded. The only module that imports it.

A `RaftMachine` is stepped: messages, ticks and proposals go in; messages collect in `outbox` and changes of the log in
the journal. It never blocks, sleeps, or touches a socket or a file. Whoever drives it (`raft_node`, or a test) keeps
one rule: between two steps everything that the journal holds is on disk, and nothing of the outbox leaves before. Only
appends may go out while the sync that covers them runs, because no answer to them is taken in before it is done.

The library keeps the order of commands, elections and the commit index. What it must not be trusted with is done here
(numbers are rows of docs/raft.md): appends are reduced to what is new (1), replies and votes are checked against term
and sender (4, 19), commands and voters are our own bytes and never pickles (10, 15), an entry is never sent in chunks
(18), snapshots are ours (3, 9, 17), a candidate asks before it raises the term (6).
"""

import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj.config import SERIALIZER_STATE
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from lograft.contract.errors import StorageCorrupted
from lograft.metadata_quorum.core.model import Member
from lograft.metadata_quorum.core.overlap import Append, Entry, what_is_new
from lograft.metadata_quorum.journal import MEMBERS, Journal, entry_from_proto, entry_to_proto
from lograft.v1 import metadata_pb2, quorum_pb2

# The release whose insides the guards lean on.
LIBRARY_VERSION = "0.3.17"
_FOLLOWER, _CANDIDATE, _LEADER = 0, 1, 2
MAX_ENTRY_BYTES = 16 << 20
# Above every entry we propose, with its tag: the library's way of cutting larger ones apart loses some sizes (row 18).
_MAX_APPEND_BYTES = MAX_ENTRY_BYTES + 2
SNAPSHOT_CHUNK_BYTES = 1 << 20
_NEVER = float("inf")

Answer = Callable[[object, bool], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftTiming:
    """How fast a lost leader is noticed."""

    # A leader gives a sign of life this often.
    heartbeat_s: float = 0.1
    # A follower that has heard nothing for a random time between these asks to be elected. Shorter means a faster
    # failover and more false alarms on a busy machine; the smaller one must be a few heartbeats. They count for links
    # that are cut and processes that hang: a crash breaks connections, and is noticed by that.
    min_election_timeout_s: float = 1.0
    max_election_timeout_s: float = 1.6
    # When the leader's connection breaks, which a crash does at once, followers wait only about this long.
    broken_link_timeout_s: float = 0.15

    def __post_init__(self) -> None:
        if self.min_election_timeout_s <= 3 * self.heartbeat_s:
            raise ValueError(
                f"min_election_timeout_s ({self.min_election_timeout_s}) must be above three times heartbeat_s "
                f"({self.heartbeat_s}): one late heartbeat would cost the leadership"
            )
        if self.max_election_timeout_s <= self.min_election_timeout_s:
            raise ValueError("max_election_timeout_s must be above min_election_timeout_s: votes would split for ever")

    @property
    def leader_fallback_s(self) -> float:
        """A leader that hears no majority for so long gives up, before others can have elected the next one (row 5)."""
        return self.min_election_timeout_s * 0.9


class SafetyViolated(Exception):
    """Raft's promises do not hold any more: the process must stop before it answers anybody."""


def raft_id(member: Member) -> str:
    """The voter's full id: a node that lost its directory is another voter, whatever its name (row 16)."""
    return f"{member.name}:{member.directory_id}"


class _Library(SyncObj):
    """PySyncObj without its own commands, snapshots and sockets. Keeps no state of ours (row 12)."""

    machine: "RaftMachine"

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:  # noqa: N802
        return self.machine.apply_committed(command)

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        # Only what is on disk: a node that is alone elects itself, commits and would apply in one step (row 2).
        committed = cast("int", getattr(self, "_SyncObj__raftCommitIndex"))  # noqa: B009
        setattr(self, "_SyncObj__raftCommitIndex", min(committed, self.machine.journal.stored_index))  # noqa: B010
        try:
            return bool(super()._SyncObj__applyLogEntries())  # type: ignore[misc]
        finally:
            setattr(self, "_SyncObj__raftCommitIndex", committed)  # noqa: B010

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Snapshots are ours."""


class _Wire(Transport):
    """What the library takes for the network."""

    def __init__(self, machine: "RaftMachine") -> None:
        super().__init__(None, None, ())
        self._machine = machine

    def send(self, node: Node, message: dict[str, object]) -> bool:
        """Translate a message of the library."""
        self._machine.library_sends(node.id, message)
        return True


class _SnapshotSource:
    """What the library asks for snapshots to send: the bytes of our own file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[Node, BinaryIO] = {}

    def getTransmissionData(self, node: Node) -> tuple[bytes, bool, bool] | None:  # noqa: N802
        """The next chunk for a node; an empty one is the last."""
        first = node not in self._open
        if first:
            try:
                self._open[node] = self._path.open("rb")
            except FileNotFoundError:
                return None
        data = self._open[node].read(SNAPSHOT_CHUNK_BYTES)
        if not data:
            self.cancelTransmisstion(node)
        return data, first, not data

    def cancelTransmisstion(self, node: Node) -> None:  # noqa: N802
        """Begin anew next time."""
        file = self._open.pop(node, None)
        if file is not None:
            file.close()

    def checkSerializing(self) -> tuple[int, None]:  # noqa: N802
        """The library writes no snapshots."""
        return SERIALIZER_STATE.NOT_SERIALIZING, None

    def close(self) -> None:
        """Let go of all files."""
        for node in list(self._open):
            self.cancelTransmisstion(node)


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """Sockets are not the library's."""


class _NoNotifier:
    def notify(self) -> None:
        """Whoever proposes also steps the machine."""


class RaftMachine:
    """One voter of the quorum."""

    def __init__(
        self,
        me: Member,
        *,
        journal: Journal,
        applied: int,
        members: tuple[Member, ...],
        snapshot_path: Path,
        apply: Callable[[Entry], object],
        timing: RaftTiming | None = None,
        seed: int | None = None,
    ) -> None:
        """``applied`` is the index that the state machine has reached, and ``members`` are the voters at that index."""
        self.me = me
        self.timing = timing or RaftTiming()
        self.journal = journal
        # Full id of the receiver, and the message.
        self.outbox: list[tuple[str, quorum_pb2.ExchangeRequest]] = []
        # A chunk of a snapshot for us: sender, chunk. Set by the driver.
        self.on_snapshot_chunk: Callable[[str, quorum_pb2.SnapshotChunk], None] = lambda _sender, _chunk: None
        self._apply = apply
        self._base_members = (applied, members)
        self.members = members
        self._random = random.Random(seed)  # noqa: S311 - election timeouts, no secret
        self._nodes: dict[str, Node] = {}
        self._votes: set[str] = set()
        self._votes_term = 0
        self._pre_votes: set[str] = set()
        self._pre_vote_term = 0
        self._campaigning = False
        self._proposed = False
        self._reply_instead: int | None = None
        self._heard_leader_at = -_NEVER
        self._library = self._make_library(applied, snapshot_path)
        journal.on_members_changed = self._take_members_from_log
        self._take_members_from_log()

    def _make_library(self, applied: int, snapshot_path: Path) -> _Library:
        timing = self.timing
        config = SyncObjConf(
            autoTick=False,
            raftMinTimeout=timing.min_election_timeout_s,
            raftMaxTimeout=timing.max_election_timeout_s,
            appendEntriesPeriod=timing.heartbeat_s,
            leaderFallbackTimeout=timing.leader_fallback_s,
            connectionTimeout=timing.max_election_timeout_s * 2,
            appendEntriesUseBatch=False,
            appendEntriesBatchSizeBytes=_MAX_APPEND_BYTES,
            commandsWaitLeader=False,
            useFork=False,
            dynamicMembershipChange=False,
        )
        stock = pysyncobj.syncobj.createJournal
        pysyncobj.syncobj.createJournal = lambda _file: self.journal
        try:
            library = _Library(self._node(raft_id(self.me)), [], conf=config, transport=_Wire(self))
        finally:
            pysyncobj.syncobj.createJournal = stock
        library.machine = self
        pipe = cast("object", getattr(library, "_SyncObj__pipeNotifier"))  # noqa: B009
        for end in ("R", "W"):
            os.close(getattr(pipe, f"_PipeNotifier__pipe{end}"))
        self._snapshots = _SnapshotSource(snapshot_path)
        for name, value in {
            "pipeNotifier": _NoNotifier(),
            "serializer": self._snapshots,
            "needLoadDumpFile": False,
            "raftLastApplied": applied,
            "raftCommitIndex": max(applied, self.journal.first_index),
        }.items():
            setattr(library, f"_SyncObj__{name}", value)
        library._poller = _NoPoller()  # type: ignore[attr-defined]
        return library

    # What the machine is

    @property
    def leading(self) -> bool:
        """Whether this node believes to lead. Others may know better: only a committed entry proves it."""
        return self._library._isLeader()

    @property
    def electing(self) -> bool:
        """Whether this node is a candidate."""
        return bool(self._get("raftState") == _CANDIDATE)

    @property
    def leader(self) -> str | None:
        """Full id of the leader, as far as it is known."""
        node = self._library._getLeader()
        return None if node is None else node.id

    @property
    def term(self) -> int:
        """The current term."""
        return self._library.raftCurrentTerm

    @property
    def commit_index(self) -> int:
        """Up to where entries are known to be committed."""
        return self._library.raftCommitIndex

    @property
    def applied_index(self) -> int:
        """Up to where entries are applied."""
        return self._library.raftLastApplied

    def match_index(self, node_id: str) -> int:
        """How far another voter is known to agree with us; only a leader knows."""
        matches = cast("dict[Node, int]", self._get("raftMatchIndex"))
        return matches.get(self._node(node_id), 0)

    @property
    def is_member(self) -> bool:
        """Whether this node is a voter, by what its log says."""
        return self.me.name in {m.name for m in self.members if m.directory_id == self.me.directory_id}

    @property
    def has_work(self) -> bool:
        """Whether a tick would do something although no time has passed: commit, apply, propose."""
        if self._proposed or self._campaigning:
            return True
        commit_index = self.commit_index
        return self.applied_index < commit_index or (self.leading and commit_index < self.journal.last_index)

    # Steps

    def tick(self) -> None:
        """Look at the time: elections, heartbeats, commit, apply, proposals."""
        now = time.monotonic()
        if not self.leading and not self._get("transferInProgress") and self._deadline <= now:
            # Only a node that would win may raise the term.
            self._restart_election_timer(now)
            if self.is_member:
                # A leader that is not heard any more is no hint for clients, nor something to tell people.
                self._set("raftLeader", None)
                self._ask_for_pre_votes()
        if not self.is_member:
            self._set("raftElectionDeadline", _NEVER)
        elif self._campaigning:
            self._campaigning = False
            self._set("raftElectionDeadline", 0)
        self._proposed = False
        self._library.doTick(0.0)

    def propose(self, tag: bytes, payload: bytes, answer: Answer) -> None:
        """Put a command into the log. ``answer`` gets (what `apply` returned, True), or (None, False) if the command
        was certainly not applied. It may never come: the caller keeps a deadline, after which the outcome is unknown.
        """
        if not self.leading:
            answer(None, False)
            return
        if len(payload) > MAX_ENTRY_BYTES:
            raise ValueError(f"an entry of {len(payload)} bytes is above the limit of {MAX_ENTRY_BYTES}")

        def told(result: object, reason: int) -> None:
            if reason == FAIL_REASON.SUCCESS:
                answer(result, True)
            elif reason not in (FAIL_REASON.LEADER_CHANGED, FAIL_REASON.UNKNOWN_OUTCOME):
                answer(None, False)

        self._proposed = True
        self._library._applyCommand(tag + payload, told)

    def transfer_to(self, node_id: str) -> bool:
        """Ask another voter to start an election now; False if it is not up to date."""
        answers: list[int] = []
        self._library.transferLeadership(self._node(node_id), lambda _result, reason: answers.append(reason))
        return answers == [FAIL_REASON.SUCCESS]

    def connected(self, node_id: str) -> None:
        """Messages to this node arrive now."""
        self._wire_event("_onNodeConnected", node_id)

    def disconnected(self, node_id: str) -> None:
        """Messages to this node do not arrive any more."""
        self._wire_event("_onNodeDisconnected", node_id)

    def leader_link_broken(self, node_id: str) -> None:
        """The connection on which this node sent to us is gone, as when its process dies: do not wait for long."""
        if node_id == self.leader and not self.leading:
            self._heard_leader_at = -_NEVER
            soon = time.monotonic() + self.timing.broken_link_timeout_s * self._random.uniform(0.3, 1.0)
            self._set("raftElectionDeadline", min(self._deadline, soon))

    def snapshot_installed(self, sender: str, entry: Entry, members: tuple[Member, ...]) -> None:
        """The driver has replaced state, snapshot file and journal by the sender's: go on from there."""
        self._base_members = (entry.index, members)
        self._set("raftLastApplied", entry.index)
        self._set("raftCommitIndex", entry.index)
        self._take_members_from_log()
        self.confirm_snapshot(sender, entry.index)

    def confirm_snapshot(self, sender: str, index: int) -> None:
        """Tell the leader that we agree with it up to ``index``."""
        self._send(sender, append_reply=quorum_pb2.AppendReply(next_index=index + 1, success=True))

    def snapshot_taken(self, index: int, members: tuple[Member, ...]) -> None:
        """Our own snapshot stands for everything up to ``index``: entries may be dropped from the log."""
        self._base_members = (index, members)

    def close(self) -> None:
        """Let go of files."""
        self._snapshots.close()

    # Messages in

    def receive(self, sender: str, message: quorum_pb2.ExchangeRequest) -> None:
        """Take in one message. Those that break the rules are dropped; Raft sends again what matters."""
        voter = sender in self._voter_ids()
        # A node that was removed must not disturb a leader. But when there is none, whoever lags behind may not know
        # yet that the candidate is a voter, and its vote may be the one that is missing.
        elector = voter or (self._quiet() and not self.leading)
        match message.WhichOneof("kind"):
            case "append_entries":
                if self._from_present_leader(sender, message.term):
                    self._receive_append(sender, message.term, message.append_entries)
            case "snapshot_chunk":
                if self._from_present_leader(sender, message.term):
                    self._receive_chunk(sender, message.term, message.snapshot_chunk)
            case "timeout_now":
                self._hand_over(sender, {"type": "timeout_now", "term": message.term})
            case "append_reply" if voter:
                self._receive_reply(sender, message.term, message.append_reply)
            case "request_vote" if elector:
                request = message.request_vote
                self._hand_over(
                    sender,
                    {
                        "type": "request_vote",
                        "term": message.term,
                        "last_log_index": request.last_log_index,
                        "last_log_term": request.last_log_term,
                    },
                )
            case "grant_vote" if voter:
                self._receive_vote(sender, message.term)
            case "pre_vote" if elector:
                self._receive_pre_vote(sender, message.pre_vote)
            case "grant_pre_vote" if voter:
                self._receive_pre_vote_grant(sender, message.grant_pre_vote.next_term)
            case _:
                pass  # not a voter any more, or a message of a newer release that we can do without

    def _from_present_leader(self, sender: str, term: int) -> bool:
        if term < self.term:
            # The library would stay silent, and the sender would never learn that its time is over.
            self._send(sender, append_reply=quorum_pb2.AppendReply(next_index=0))
            return False
        if self.leading and term == self.term:
            raise SafetyViolated(f"{sender} leads in term {term}, and so does this node")
        self._heard_leader_at = time.monotonic()
        # Whoever promised a vote did so while there was no leader.
        self._campaigning = False
        return True

    def _receive_append(self, sender: str, term: int, message: quorum_pb2.AppendEntries) -> None:
        entries = [entry_from_proto(entry) for entry in message.entries]
        if any(entry.index != message.previous_index + n for n, entry in enumerate(entries, 1)):
            return
        journal = self.journal
        append = what_is_new(
            Append(message.previous_index, message.previous_term, entries, message.commit_index),
            first_index=journal.first_index,
            last_index=journal.last_index,
            term_at=journal.term_at,
        )
        if append.cut_from is not None and append.cut_from <= self.commit_index:
            raise SafetyViolated(
                f"{sender} (term {term}) would replace entry {append.cut_from}, and up to {self.commit_index} "
                "is committed"
            )
        self._reply_instead = append.next_index
        try:
            self._hand_over(
                sender,
                {
                    "type": "append_entries",
                    "term": term,
                    "commit_index": append.commit_index,
                    "entries": list(append.entries),
                    "prevLogIdx": append.previous_index,
                    "prevLogTerm": append.previous_term,
                },
            )
        finally:
            self._reply_instead = None

    def _receive_chunk(self, sender: str, term: int, chunk: quorum_pb2.SnapshotChunk) -> None:
        # The library takes note of the leader. Its commit index is left out: until the snapshot is installed our own
        # entries need not be the leader's, and the library would commit them.
        self._hand_over(sender, {"type": "append_entries", "term": term, "commit_index": 0, "serialized": None})
        self.on_snapshot_chunk(sender, chunk)
        # A sign of life that confirms nothing: the leader must not give up while a large snapshot travels.
        self._send(sender, append_reply=quorum_pb2.AppendReply(next_index=0))

    def _receive_reply(self, sender: str, term: int, reply: quorum_pb2.AppendReply) -> None:
        if term > self.term:
            self._follow_term(term)
        elif term == self.term and self.leading:
            self._hand_over(
                sender,
                {
                    "type": "next_node_idx",
                    "next_node_idx": reply.next_index,
                    "reset": reply.reset,
                    "success": reply.success,
                },
            )

    def _receive_vote(self, sender: str, term: int) -> None:
        if self._votes_term != self.term:
            self._votes_term, self._votes = self.term, set()
        # The library counts votes, not voters.
        if term == self.term and sender not in self._votes:
            self._votes.add(sender)
            self._hand_over(sender, {"type": "response_vote", "term": term})

    def _quiet(self) -> bool:
        """Whether no leader has been heard of for so long that there may be none."""
        return time.monotonic() - self._heard_leader_at >= self.timing.min_election_timeout_s * 0.8

    def _receive_pre_vote(self, sender: str, asked: quorum_pb2.PreVote) -> None:
        last = (self.journal.entries[-1].term, self.journal.last_index)
        if self._quiet() and not self.leading and asked.next_term > self.term:
            if (asked.last_log_term, asked.last_log_index) >= last:
                self._send(sender, grant_pre_vote=quorum_pb2.GrantPreVote(next_term=asked.next_term))
        elif self.term >= asked.next_term:
            # It must not ask for ever in a term that is over.
            self._send(sender, append_reply=quorum_pb2.AppendReply(next_index=0))

    def _receive_pre_vote_grant(self, sender: str, next_term: int) -> None:
        if next_term == self._pre_vote_term == self.term + 1 and not self.leading:
            self._pre_votes.add(sender)
            self._campaign_if_wanted()

    def _ask_for_pre_votes(self) -> None:
        self._pre_vote_term = self.term + 1
        self._pre_votes = {raft_id(self.me)}
        last = self.journal.entries[-1]
        for node_id in self._voter_ids() - self._pre_votes:
            self._send(
                node_id,
                pre_vote=quorum_pb2.PreVote(
                    next_term=self._pre_vote_term, last_log_index=last.index, last_log_term=last.term
                ),
            )
        self._campaign_if_wanted()

    def _campaign_if_wanted(self) -> None:
        if len(self._pre_votes & self._voter_ids()) * 2 > len(self.members):
            self._pre_vote_term = 0
            self._campaigning = True

    # Messages out

    def library_sends(self, node_id: str, message: dict[str, object]) -> None:
        """Translate what the library wants to send."""
        match message["type"]:
            case "append_entries" if "serialized" in message:
                data, first, last = cast("tuple[bytes, bool, bool]", message["serialized"] or (b"", False, False))
                self._send(node_id, snapshot_chunk=quorum_pb2.SnapshotChunk(data=data, first=first, last=last))
            case "append_entries" if "transmission" not in message:
                append = quorum_pb2.AppendEntries(
                    previous_index=cast("int", message["prevLogIdx"]),
                    previous_term=cast("int", message["prevLogTerm"]),
                    commit_index=cast("int", message["commit_index"]),
                )
                for entry in cast("Iterable[Entry]", message["entries"]):
                    entry_to_proto(entry, append.entries.add())
                self._send(node_id, append_entries=append)
            case "next_node_idx":
                next_index = cast("int", message["next_node_idx"])
                if message["success"] and self._reply_instead is not None:
                    next_index = self._reply_instead
                self._send(
                    node_id,
                    append_reply=quorum_pb2.AppendReply(
                        next_index=next_index, reset=bool(message["reset"]), success=bool(message["success"])
                    ),
                )
            case "request_vote":
                self._send(
                    node_id,
                    request_vote=quorum_pb2.RequestVote(
                        last_log_index=cast("int", message["last_log_index"]),
                        last_log_term=cast("int", message["last_log_term"]),
                    ),
                )
            case "response_vote":
                self._send(node_id, grant_vote=quorum_pb2.GrantVote())
            case "timeout_now":
                self._send(node_id, timeout_now=quorum_pb2.TimeoutNow())
            case "apply_command":
                # We do not lead any more. Commands are never passed on: nobody would know what became of them.
                waiting = cast("dict[object, Callable[[object, int], None]]", self._get("commandsWaitingReply"))
                answer = waiting.pop(message.get("request_id"), None)
                if answer is not None:
                    answer(None, FAIL_REASON.NOT_LEADER)
            case other:
                raise SafetyViolated(f"the Raft library sends a message of kind {other!r}, which must not happen")

    def _send(self, receiver: str, **kind: object) -> None:
        self.outbox.append((receiver, quorum_pb2.ExchangeRequest(term=self.term, **kind)))  # type: ignore[arg-type]

    # Commands and voters

    def apply_committed(self, command: bytes) -> object:
        """The library has committed the next entry. Whatever is wrong with it, this must not raise (row 7)."""
        index = self.applied_index + 1
        return self._apply(Entry(command, index, self.journal.term_at(index)))

    def _take_members_from_log(self) -> None:
        """The voters by the newest entry about them in the log, committed or not."""
        base_index, members = self._base_members
        for entry in reversed(self.journal.entries):
            if entry.index <= base_index:
                break
            if entry.command[:1] == MEMBERS:
                members = _members_in(entry, self.journal.path)
                break
        self.members = members
        others = {self._node(node_id) for node_id in self._voter_ids() - {raft_id(self.me)}}
        known = cast("set[Node]", self._get("otherNodes"))
        next_index = cast("dict[Node, int]", self._get("raftNextIndex"))
        match_index = cast("dict[Node, int]", self._get("raftMatchIndex"))
        heard_at = cast("dict[Node, float]", self._get("lastResponseTime"))
        for node in others - known:
            next_index[node] = self.journal.last_index + 1
            match_index[node] = 0
            heard_at[node] = time.monotonic()
        for node in known - others:
            next_index.pop(node, None)
            match_index.pop(node, None)
            heard_at.pop(node, None)
        self._set("otherNodes", others)
        if self.is_member and self._deadline == _NEVER:
            self._restart_election_timer(time.monotonic())

    # The library's insides

    def _voter_ids(self) -> set[str]:
        return {raft_id(member) for member in self.members}

    def _restart_election_timer(self, now: float) -> None:
        timing = self.timing
        patience = self._random.uniform(timing.min_election_timeout_s, timing.max_election_timeout_s)
        if len(self.members) == 1:
            patience = timing.heartbeat_s
        self._set("raftElectionDeadline", now + patience)

    def _follow_term(self, term: int) -> None:
        self._library._SyncObj__setCurrentTerm(term, None)  # type: ignore[attr-defined]
        self._library._SyncObj__setState(_FOLLOWER)  # type: ignore[attr-defined]
        self._set("raftLeader", None)

    def _hand_over(self, sender: str, message: dict[str, object]) -> None:
        self._library._SyncObj__onMessageReceived(self._node(sender), message)  # type: ignore[attr-defined]

    def _wire_event(self, event: str, node_id: str) -> None:
        wire = cast("_Wire", self._get("transport"))
        getattr(wire, event)(self._node(node_id))

    def _node(self, node_id: str) -> Node:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = Node(node_id)
        return node

    @property
    def _deadline(self) -> float:
        """When this node asks to be elected, unless it hears from a leader."""
        return cast("float", self._get("raftElectionDeadline"))

    def _get(self, name: str) -> object:
        return getattr(self._library, f"_SyncObj__{name}")

    def _set(self, name: str, value: object) -> None:
        setattr(self._library, f"_SyncObj__{name}", value)


def _members_in(entry: Entry, path: Path) -> tuple[Member, ...]:
    changes = metadata_pb2.MetadataEntry.FromString(entry.command[1:]).changes
    if len(changes) != 1 or changes[0].WhichOneof("kind") != "set_quorum_members":
        raise StorageCorrupted(str(path), 0, f"entry {entry.index} does not name the quorum's members")
    return tuple(Member(m.name, m.directory_id, m.address) for m in changes[0].set_quorum_members.members)
