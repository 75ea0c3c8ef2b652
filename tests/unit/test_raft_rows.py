"""Every hazard of the Raft library in docs/raft.md has a test here: the number in a test's name is the row.

Our side runs in the lab (`chaos/raft_lab.py`). Where it is cheap the stock library is driven through the same, to show
that the hazard is real, and that the day has not come on which the guard may go.
"""

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pysyncobj.pickle
import pysyncobj.version
import pytest
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from lograft.chaos.raft_lab import LabNode, RaftLab, SafetyBroken
from lograft.contract.disk import Disk
from lograft.contract.errors import Internal, MembershipRefused, StorageCorrupted, UnsupportedVersion, from_detail
from lograft.metadata_quorum import raft_machine
from lograft.metadata_quorum.controller import Controller
from lograft.metadata_quorum.core import apply as core_apply
from lograft.metadata_quorum.core.apply import apply_entry
from lograft.metadata_quorum.core.model import ClusterState, Member
from lograft.metadata_quorum.core.snapshot import SnapshotLoader, capture, encode_pieces
from lograft.metadata_quorum.journal import METADATA, NO_OP
from lograft.metadata_quorum.raft_machine import LIBRARY_VERSION, RaftTiming, SafetyViolated, raft_id
from lograft.metadata_quorum.raft_node import RaftNode, SnapshotLimits
from lograft.metadata_quorum.snapshot_file import SNAPSHOT
from lograft.v1 import metadata_pb2, quorum_pb2

pytestmark = pytest.mark.requirement("R24")

TRUNCATED = "truncating already-applied"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RaftLab]:
    with RaftLab(tmp_path) as made:
        yield made


@pytest.fixture
def five(tmp_path: Path) -> Iterator[RaftLab]:
    with RaftLab(tmp_path, ["q1", "q2", "q3", "q4", "q5"]) as made:
        yield made


# The stock library, on a leash


class Leash(Transport):
    """A transport that keeps what the library sends."""

    def __init__(self) -> None:
        super().__init__(None, None, ())
        self.sent: list[tuple[str, dict]] = []

    def send(self, node: Node, message: dict) -> bool:
        self.sent.append((node.id, message))
        return True


class Stock:
    """A node of the stock library: messages in by hand, messages out in `sent`."""

    def __init__(self, name: str, others: str, **options) -> None:
        self.transport = Leash()
        config = SyncObjConf(autoTick=False, useFork=False, logCompactionMinEntries=10**6, **options)
        self.library = SyncObj(Node(name), [Node(each) for each in others], conf=config, transport=self.transport)
        for other in others:
            self.transport._onNodeConnected(Node(other))

    @property
    def log(self) -> list[tuple[bytes, int, int]]:
        return self.library._SyncObj__raftLog[:]

    def receive(self, sender: str, message: dict) -> None:
        self.transport._onMessageReceived(Node(sender), message)

    def append(self, previous: int, count: int, commit: int) -> None:
        entries = [(NO_OP, index, 1) for index in range(previous + 1, previous + count + 1)]
        term = 1 if previous > 1 else 0
        self.receive(
            "a",
            {
                "type": "append_entries",
                "term": 1,
                "commit_index": commit,
                "entries": entries,
                "prevLogIdx": previous,
                "prevLogTerm": term,
            },
        )

    def campaign(self) -> None:
        self.library._SyncObj__raftElectionDeadline = 0
        self.library.doTick()


def append_message(term: int, previous: int, count: int, commit: int) -> quorum_pb2.ExchangeRequest:
    append = quorum_pb2.AppendEntries(
        previous_index=previous, previous_term=1 if previous > 1 else 0, commit_index=commit
    )
    for index in range(previous + 1, previous + count + 1):
        append.entries.add(index=index, term=1, kind=quorum_pb2.ENTRY_KIND_NO_OP)
    return quorum_pb2.ExchangeRequest(term=term, append_entries=append)


def give(node: LabNode, sender: LabNode, message: quorum_pb2.ExchangeRequest) -> list[quorum_pb2.ExchangeRequest]:
    """One message to a node, which steps and syncs; what it sends to the sender."""
    node.lab.network.clear()
    node.inbox.append((sender.id, message.SerializeToString()))
    node.step()
    node.sync()
    sent = [each for each in node.lab.network if each[:2] == (node.id, sender.id)]
    return [quorum_pb2.ExchangeRequest.FromString(each[2]) for each in sent]


def indexes(node: LabNode) -> list[int]:
    return [entry.index for entry in node.journal.entries]


# What the guards lean on


def test_library_when_looked_at_then_is_the_release_whose_insides_we_know() -> None:
    assert pysyncobj.version.VERSION == LIBRARY_VERSION


def test_library_when_looked_at_then_has_every_private_name_that_we_use() -> None:
    source = Path(raft_machine.__file__).read_text()
    used = set(re.findall(r"_SyncObj__(\w+)", source)) | set(re.findall(r'_[gs]et\("(\w+)"', source))
    used |= set(re.findall(r'^            "(\w+)": ', source, re.MULTILINE))
    assert len(used) > 15
    stock = Stock("a", "b", appendEntriesUseBatch=False)
    missing = [name for name in used if not hasattr(stock.library, f"_SyncObj__{name}")]
    assert missing == []
    notifier = stock.library._SyncObj__pipeNotifier
    for end in ("R", "W"):
        os.close(getattr(notifier, f"_PipeNotifier__pipe{end}"))


# Row 1: an overlapping append cuts the log


@pytest.mark.parametrize("late", [(1, 1), (2, 0), (1, 2)], ids=["repeated", "heartbeat", "longer"])
def test_row_1_stock_library_when_an_append_comes_late_then_loses_entries(
    late: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    stock = Stock("b", "ac")
    stock.append(1, 4, commit=5)
    stock.library.doTick()
    assert stock.library.raftLastApplied == 5
    stock.append(*late, commit=5)
    assert len(stock.log) < 5
    assert TRUNCATED in caplog.text


@pytest.mark.parametrize("late", [(1, 1), (2, 0), (1, 2), (1, 0)], ids=["repeated", "heartbeat", "longer", "first"])
def test_row_1_follower_when_an_append_comes_late_then_keeps_its_log_and_confirms_what_was_sent(
    lab: RaftLab, late: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    leader, follower = lab["q1"], lab["q2"]
    give(follower, leader, append_message(1, 1, 4, 5))
    follower.step()
    assert follower.machine.applied_index == 5
    (reply,) = give(follower, leader, append_message(1, *late, 5))
    assert indexes(follower) == [1, 2, 3, 4, 5]
    assert (reply.append_reply.success, reply.append_reply.next_index) == (True, sum(late) + 1)
    assert TRUNCATED not in caplog.text


def test_row_1_follower_when_the_leader_has_other_entries_then_cuts_exactly_those(lab: RaftLab) -> None:
    leader, follower = lab["q1"], lab["q2"]
    give(follower, leader, append_message(1, 1, 4, 2))
    other = quorum_pb2.ExchangeRequest(term=3)
    other.append_entries.previous_index, other.append_entries.previous_term = 2, 1
    other.append_entries.entries.add(index=3, term=1, kind=quorum_pb2.ENTRY_KIND_NO_OP)
    other.append_entries.entries.add(index=4, term=3, kind=quorum_pb2.ENTRY_KIND_NO_OP)
    (reply,) = give(follower, leader, other)
    assert [(entry.index, entry.term) for entry in follower.journal.entries[2:]] == [(3, 1), (4, 3)]
    assert reply.append_reply.next_index == 5


def test_row_1_follower_when_a_committed_entry_would_be_replaced_then_stops(lab: RaftLab) -> None:
    leader, follower = lab["q1"], lab["q2"]
    give(follower, leader, append_message(1, 1, 4, 5))
    other = quorum_pb2.ExchangeRequest(term=3)
    other.append_entries.previous_index, other.append_entries.previous_term = 4, 1
    other.append_entries.entries.add(index=5, term=3, kind=quorum_pb2.ENTRY_KIND_NO_OP)
    with pytest.raises(SafetyViolated, match="would replace entry 5"):
        give(follower, leader, other)


# Row 2: nothing leaves before the sync


def test_row_2_follower_when_its_disk_is_not_done_then_confirms_and_applies_nothing(lab: RaftLab) -> None:
    leader, follower = lab["q1"], lab["q2"]
    follower.inbox.append((leader.id, append_message(1, 1, 4, 5).SerializeToString()))
    follower.step()
    assert follower.block is not None
    assert lab.network == []
    assert follower.machine.applied_index == 1
    follower.sync()
    assert len(lab.take("append_reply")) == 1
    follower.step()
    assert follower.machine.applied_index == 5


def test_row_2_voter_when_its_disk_is_not_done_then_its_vote_has_not_left(lab: RaftLab) -> None:
    candidate, voter = lab["q1"], lab["q2"]
    ask = quorum_pb2.ExchangeRequest(term=7, request_vote=quorum_pb2.RequestVote(last_log_index=1))
    voter.inbox.append((candidate.id, ask.SerializeToString()))
    voter.step()
    assert lab.network == []
    voter.crash()
    voter.start()
    assert voter.machine.term == 0
    assert [each.WhichOneof("kind") for each in give(voter, candidate, ask)] == ["grant_vote"]
    voter.crash()
    voter.start()
    # It remembers: another candidate of the same term gets nothing.
    assert give(voter, lab["q3"], ask) == []


def test_row_2_single_node_when_its_disk_is_not_done_then_answers_nothing(tmp_path: Path) -> None:
    with RaftLab(tmp_path, ["q1"]) as lab:
        node = lab["q1"]
        lab.clock.now += 5
        node.step()
        assert node.machine.leading
        assert node.machine.applied_index == 1
        node.sync()
        node.step()
        assert node.machine.applied_index == 2
        lab.propose(node, b"x")
        node.step()
        node.step()
        assert lab.answers == {}
        node.sync()
        node.step()
        assert lab.answers == {b"x": 3}


# Row 3: killed between snapshot and trim


# It leaves a file of its own open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_row_3_stock_library_when_killed_between_dump_and_trim_then_forgets_acknowledged_entries(
    tmp_path: Path,
) -> None:
    files = {"journalFile": str(tmp_path / "journal"), "fullDumpFile": str(tmp_path / "dump")}
    stock = Stock("b", "ac", **files)
    stock.append(1, 9, commit=6)
    stock.library.doTick()
    acknowledged = [entry[1] for entry in stock.log]
    assert acknowledged[-1] == 10
    stock.library.forceLogCompaction()
    stock.library.doTick()
    assert Path(files["fullDumpFile"]).exists()
    stock.library.destroy()  # on the next tick it would have trimmed the journal
    again = Stock("b", "ac", **files)
    again.library.doTick()
    assert [entry[1] for entry in again.log] == [5, 6]
    again.library.destroy()


def test_row_3_node_when_killed_between_snapshot_and_trim_then_keeps_acknowledged_entries(tmp_path: Path) -> None:
    with RaftLab(tmp_path, history_entries=0) as lab:
        leader, follower = lab["q1"], lab["q2"]
        give(follower, leader, append_message(1, 1, 9, 6))
        follower.step()
        follower.write_own_snapshot()
        follower.crash()
        follower.start()
        assert follower.state.version == 6
        assert indexes(follower) == [6, 7, 8, 9, 10]
        follower.crash()
        follower.start()
        assert indexes(follower) == [6, 7, 8, 9, 10]


# Row 4: replies without a term


def test_row_4_leader_when_a_reply_of_an_older_term_arrives_then_does_not_count_it(lab: RaftLab) -> None:
    old, other = lab.elect("q1"), lab["q2"]
    lab.settle()
    lab.propose(old, b"x")
    old.step()
    lab.network = lab.take("append_entries")
    while lab.network:
        lab.deliver()
    for node in (other, lab["q3"]):
        node.step()
        node.sync()
    late = [sent for sent in lab.take("append_reply") if sent[0] == other.id]
    assert late
    # Longer on its way than two elections take.
    old.sync()
    lab.elect("q2")
    lab.settle()
    lab.run_until(lambda: lab["q2"].machine.transfer_to(old.id))
    lab.run_until(lambda: old.machine.leading)
    assert old.machine.match_index(other.id) == 0
    old.sync()
    for sender, _, message in late:
        old.inbox.append((sender, message))
    old.step()
    assert old.machine.match_index(other.id) == 0
    # The very same words in the present term count: it is the term that makes the difference.
    for sender, _, message in late:
        reply = quorum_pb2.ExchangeRequest.FromString(message)
        reply.term = old.machine.term
        old.machine.receive(sender, reply)
    assert old.machine.match_index(other.id) > 0


# Row 5: a cut-off leader


def test_row_5_leader_when_cut_off_then_gives_up_before_another_can_be_elected(lab: RaftLab) -> None:
    assert RaftTiming().leader_fallback_s < RaftTiming().min_election_timeout_s
    leader = lab.elect("q1")
    lab.settle()
    lab.cut_links(("q1", "q2"), ("q1", "q3"), ("q2", "q1"), ("q3", "q1"))
    for _ in range(300):
        lab.round()
        assert sum(node.machine.leading for node in lab.nodes.values()) <= 1
    assert lab.leader is not leader
    lab.commit(b"x")
    # What the old one had not committed was never answered, and is discarded when it returns.
    lab.cut.clear()
    lab.settle()
    lab.check_answers()


# Row 6: a node that reaches only some peers


@pytest.mark.parametrize("deaf", [True, False], ids=["hears nobody", "nobody hears it"])
def test_row_6_terms_when_a_follower_is_cut_off_one_way_then_do_not_rise(lab: RaftLab, deaf: bool) -> None:
    leader = lab.elect("q1")
    lab.settle()
    term = leader.machine.term
    links = [("q1", "q3"), ("q2", "q3")]
    lab.cut_links(*(links if deaf else [(receiver, sender) for sender, receiver in links]))
    for number in range(400):
        lab.round()
        if number % 40 == 0:
            lab.propose(leader, b"%d" % number)
    assert leader.machine.leading
    assert {node.machine.term for node in lab.nodes.values()} == {term}
    lab.cut.clear()
    lab.settle()
    assert {node.machine.term for node in lab.nodes.values()} == {term}
    assert len(lab.answers) == 10


def test_row_6_quorum_when_the_leader_hears_nobody_then_others_lead_within_a_few_terms(lab: RaftLab) -> None:
    old = lab.elect("q1")
    term = old.machine.term
    lab.cut_links(("q2", "q1"), ("q3", "q1"))
    lab.run_until(lambda: lab.leader not in (None, old))
    lab.commit(b"x")
    for _ in range(300):
        lab.round()
    assert max(node.machine.term for node in lab.nodes.values()) <= term + 3


# Row 7: an exception while applying


def test_row_7_apply_when_a_change_fails_then_rejects_it_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    state = ClusterState(version=1)
    claim = metadata_pb2.Change(claim_controller=metadata_pb2.ClaimController(node="q1", cluster_id="c"))
    member = metadata_pb2.QuorumMember(name="q1", directory_id="d")
    change = metadata_pb2.Change(set_quorum_members=metadata_pb2.SetQuorumMembers(members=[member]))
    apply_entry(state, metadata_pb2.MetadataEntry(controller_epoch=1, changes=[claim]), version=2, term=1)
    entry = metadata_pb2.MetadataEntry(controller_epoch=1, changes=[change])
    with monkeypatch.context() as patch:
        patch.setitem(core_apply._HANDLERS, "set_quorum_members", broken)
        (result,) = apply_entry(state, entry, version=3, term=1)
    assert isinstance(from_detail(result.rejected), Internal)
    assert state.version == 3
    (result,) = apply_entry(state, entry, version=4, term=1)
    assert result.HasField("applied")


def test_row_7_stock_library_when_a_command_raises_then_applies_it_again_and_again() -> None:
    stock = Stock("a", "")
    applied = []

    def broken(command: bytes) -> None:
        applied.append(command)
        raise ZeroDivisionError

    stock.library._SyncObj__doApplyCommand = broken
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            stock.campaign()
    assert len(applied) == 5
    assert stock.library.raftLastApplied == 1


# Row 8: what became of a proposal


NOT_APPLIED = {
    FAIL_REASON.QUEUE_FULL,
    FAIL_REASON.MISSING_LEADER,
    FAIL_REASON.NOT_LEADER,
    FAIL_REASON.REQUEST_DENIED,
    FAIL_REASON.DISCARDED,
}
UNKNOWN = {FAIL_REASON.LEADER_CHANGED, FAIL_REASON.UNKNOWN_OUTCOME}


def test_row_8_proposal_when_the_library_tells_its_fate_then_maybe_is_never_told_as_no(
    lab: RaftLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = {value for name, value in vars(FAIL_REASON).items() if name.isupper()}
    assert reasons == NOT_APPLIED | UNKNOWN | {FAIL_REASON.SUCCESS}
    leader = lab.elect()
    told = []
    monkeypatch.setattr(leader.machine._library, "_applyCommand", lambda _, callback: told.append(callback))
    answers: dict[int, tuple[object, bool]] = {}
    for reason in reasons:
        leader.machine.propose(METADATA, b"x", lambda *answer, reason=reason: answers.__setitem__(reason, answer))
        told.pop()("result", reason)
    assert answers == {FAIL_REASON.SUCCESS: ("result", True)} | dict.fromkeys(NOT_APPLIED, (None, False))


def test_row_8_proposal_when_another_entry_took_its_place_then_was_not_applied(lab: RaftLab) -> None:
    old = lab.elect("q1")
    lab.settle()
    lab.cut_links(("q1", "q2"), ("q1", "q3"), ("q2", "q1"), ("q3", "q1"))
    lab.propose(old, b"lost")
    lab.run_until(lambda: lab.leader not in (None, old))
    lab.commit(b"won")
    assert b"lost" not in lab.answers
    lab.cut.clear()
    lab.settle()
    assert lab.answers[b"lost"] is None
    lab.check_answers()


def test_row_8_proposal_when_leadership_goes_before_it_is_in_the_log_then_was_not_applied(lab: RaftLab) -> None:
    leader = lab.elect("q1")
    lab.propose(leader, b"x")
    reply = quorum_pb2.ExchangeRequest(term=leader.machine.term + 1, append_reply=quorum_pb2.AppendReply())
    leader.machine.receive(lab["q2"].id, reply)
    leader.step()
    assert lab.answers == {b"x": None}


# Rows 9, 10, 12 and 13: no fork, no pickle, no state and no waiting in the library


def test_row_9_10_12_13_quorum_when_it_lives_a_whole_life_then_nothing_is_pickled_forked_or_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("this must never be called")

    for name in ("loads", "dumps", "load", "dump"):
        monkeypatch.setattr(pysyncobj.pickle, name, forbidden)
    for name in ("fork", "_exit"):
        monkeypatch.setattr(os, name, forbidden)
    monkeypatch.setattr("time.sleep", forbidden)
    threads = threading.active_count()
    with RaftLab(tmp_path, history_entries=0) as lab:
        for number in range(20):
            lab.commit(b"%d" % number)
        lab.settle()
        lab["q3"].crash()
        lab.commit(b"x")
        leader = lab.elect()
        leader.write_own_snapshot()
        leader.trim_to_own_snapshot()
        lab["q3"].start()
        lab.add(Member("q4", "new", "q4.test:1"))
        payload = lab.propose_members(leader, [*leader.machine.members, lab["q4"].member])
        lab.run_until(lambda: payload in lab.answers)
        lab.settle()
        assert lab.installed_snapshots >= 1
        for node in lab.nodes.values():
            node.crash()
            node.start()
        lab.settle()
        assert len({node.state.cluster_id for node in lab.nodes.values()}) == 1
    assert threading.active_count() == threads


def test_row_9_library_when_configured_then_does_not_fork(lab: RaftLab) -> None:
    assert lab["q1"].machine._library.conf.useFork is False


def test_row_12_library_when_looked_at_then_holds_no_state_of_ours(lab: RaftLab) -> None:
    library = lab["q1"].machine._library
    assert library._methodToID == {}
    assert set(vars(library)) - library._SyncObj__properies == {"_SyncObj__enabledCodeVersion", "machine"}


def test_row_13_proposal_when_the_clock_stands_still_then_its_append_leaves_in_the_same_step(lab: RaftLab) -> None:
    leader = lab.elect()
    lab.settle()
    leader.step()
    lab.network.clear()
    lab.propose(leader, b"x")
    leader.step()
    appends = [quorum_pb2.ExchangeRequest.FromString(sent[2]).append_entries for sent in lab.take("append_entries")]
    assert sorted(bool(append.entries) for append in appends).count(True) == 2
    assert leader.machine._library.conf.appendEntriesUseBatch is False


# Row 11: ids are names


def test_row_11_node_id_when_the_address_changes_then_stays(lab: RaftLab) -> None:
    assert raft_id(Member("q1", "d", "here:1")) == raft_id(Member("q1", "d", "there:2")) == "q1:d"
    leader = lab.elect("q1")
    moved = [member._replace(address="elsewhere:9") for member in leader.machine.members]
    payload = lab.propose_members(leader, moved)
    lab.run_until(lambda: payload in lab.answers)
    lab.settle()
    assert [member.address for member in lab["q3"].machine.members] == ["elsewhere:9"] * 3
    assert leader.machine.leading


# Row 14: a full disk


def test_row_14_follower_when_its_disk_is_full_then_stands_still_and_returns(lab: RaftLab) -> None:
    lab.elect("q1")
    lab.settle()
    full = lab["q3"]
    full.disk.full = True
    lab.commit(b"x")
    for _ in range(100):
        lab.network = [sent for sent in lab.network if sent[1] != full.id or full.block is None]
        lab.round()
        assert not [sent for sent in lab.network if sent[0] == full.id]
    assert full.block is not None
    assert full.machine.applied_index < lab["q1"].machine.applied_index
    full.disk.full = False
    lab.settle()
    full.crash()
    full.start()
    lab.settle()
    lab.check_answers()


def test_row_14_leader_when_its_disk_is_full_then_another_leads_and_nothing_answered_is_lost(lab: RaftLab) -> None:
    old = lab.elect("q1")
    lab.commit(b"before")
    old.disk.full = True
    lab.propose(old, b"maybe")
    lab.run_until(lambda: [node for node in lab.nodes.values() if node is not old and node.machine.leading])
    lab.propose(next(node for node in lab.nodes.values() if node is not old and node.machine.leading), b"after")
    lab.run_until(lambda: b"after" in lab.answers)
    old.disk.full = False
    lab.settle()
    assert None not in (lab.answers[b"before"], lab.answers[b"after"])
    lab.check_answers()


# Row 15: the voters


def test_row_15_voters_when_their_entry_is_cut_off_then_are_the_former_ones_again(lab: RaftLab) -> None:
    old = lab.elect("q1")
    lab.settle()
    before = old.machine.members
    lab.cut_links(("q1", "q2"), ("q1", "q3"), ("q2", "q1"), ("q3", "q1"))
    lab.propose_members(old, before[:2])
    old.step()
    assert old.machine.members == before[:2]
    lab.run_until(lambda: lab.leader not in (None, old))
    lab.commit(b"x")
    lab.cut.clear()
    lab.settle()
    assert old.machine.members == before
    assert old.machine._get("otherNodes") == {Node(lab["q2"].id), Node(lab["q3"].id)}
    old.crash()
    old.start()
    assert old.machine.members == before


def test_row_15_removed_node_when_it_campaigns_then_nobody_listens(lab: RaftLab) -> None:
    leader = lab.elect("q1")
    lab.settle()
    removed = lab["q3"]
    lab.cut_links(("q1", "q3"), ("q2", "q3"))  # it does not even hear of it
    payload = lab.propose_members(leader, leader.machine.members[:2])
    lab.run_until(lambda: payload in lab.answers)
    term = leader.machine.term
    ask = quorum_pb2.ExchangeRequest(
        term=term + 5, request_vote=quorum_pb2.RequestVote(last_log_index=99, last_log_term=term)
    )
    for node in (leader, lab["q2"]):
        assert give(node, removed, ask) == []
    for _ in range(200):
        lab.round()
    assert leader.machine.leading
    assert {lab["q1"].machine.term, lab["q2"].machine.term} == {term}
    # And its confirmation does not count.
    reply = quorum_pb2.AppendReply(next_index=99, success=True)
    leader.machine.receive(removed.id, quorum_pb2.ExchangeRequest(term=term, append_reply=reply))
    assert leader.machine.match_index(removed.id) == 0


def test_row_15_new_voter_when_the_leader_dies_before_telling_it_then_votes_all_the_same(tmp_path: Path) -> None:
    with RaftLab(tmp_path, ["q1"]) as lab:
        leader = lab.elect()
        lab.settle()
        added = lab.add(Member("q2", "new", "q2.test:1"))
        payload = lab.propose_members(leader, [leader.member, added.member])
        leader.step()
        leader.sync()
        lab.network.clear()
        leader.crash()
        leader.start()
        lab.settle()
        assert lab.committed[leader.state.version].term == leader.machine.term
        assert {node.machine.members for node in lab.nodes.values()} == {(leader.member, added.member)}
        assert payload in {entry.command[1:] for entry in lab.committed.values()}


def test_row_15_removed_leader_when_it_has_committed_that_then_the_others_go_on(lab: RaftLab) -> None:
    leader = lab.elect("q1")
    payload = lab.propose_members(leader, leader.machine.members[1:])
    lab.run_until(lambda: payload in lab.answers)
    leader.crash()
    lab.commit(b"x")
    lab.settle()
    assert lab.leader in (lab["q2"], lab["q3"])


def controller_of(members: tuple[Member, ...], proposed: list) -> Controller:
    machine = SimpleNamespace(leading=True, term=1, me=members[0], members=members, leader=None)
    node = SimpleNamespace(
        machine=machine,
        standing_still=False,
        on_step=[],
        state=ClusterState(members=members),
        propose=lambda *proposal: proposed.append(proposal),
    )
    controller = Controller(node)  # type: ignore[arg-type]
    controller.epoch = 1
    return controller


MEMBERS_OF_THREE = tuple(Member(f"q{n}", f"d{n}", f"q{n}.test:1") for n in (1, 2, 3))


def test_row_15_controller_when_a_change_is_on_its_way_then_does_not_begin_another() -> None:
    async def main() -> None:
        proposed: list = []
        controller = controller_of(MEMBERS_OF_THREE, proposed)
        first = asyncio.ensure_future(controller.change_members(MEMBERS_OF_THREE[:2]))
        second = asyncio.ensure_future(controller.change_members((*MEMBERS_OF_THREE, Member("q4", "d4", ""))))
        await asyncio.sleep(0.05)
        assert len(proposed) == 1
        controller._node.machine.members = MEMBERS_OF_THREE[:2]
        proposed[0][2]([metadata_pb2.ChangeResult()], True)
        await first
        # The second was decided before the first was known: together they would be two changes.
        with pytest.raises(MembershipRefused, match="have changed meanwhile"):
            await second
        assert len(proposed) == 1
        controller.close()

    asyncio.run(main())


def test_row_15_controller_when_it_resigns_then_may_change_voters_in_its_next_life() -> None:
    async def main() -> None:
        proposed: list = []
        controller = controller_of(MEMBERS_OF_THREE, proposed)
        first = asyncio.ensure_future(controller.change_members(MEMBERS_OF_THREE[:2]))
        await asyncio.sleep(0.01)
        controller._node.machine.leading = False
        controller.look()
        await asyncio.gather(first, return_exceptions=True)
        controller._node.machine.leading, controller.epoch = True, 1
        second = asyncio.ensure_future(controller.change_members(MEMBERS_OF_THREE[:2]))
        await asyncio.sleep(0.02)
        assert len(proposed) == 2
        # The fate of the first, told late, does not open the door for a third.
        proposed[0][2](None, False)
        assert controller._changing_members
        proposed[1][2]([metadata_pb2.ChangeResult()], True)
        await second
        controller.close()

    asyncio.run(main())


# Row 16: a voter that lost its disk


def lose_the_leader_and_the_disk_of_q2(lab: RaftLab) -> None:
    """Entry x is on q1 and q2; then q1 is away and q2's disk is empty. q3 has never seen x."""
    lab.elect("q1")
    lab.settle()
    lab.cut_links(("q1", "q3"), ("q3", "q1"))
    lab.commit(b"x")
    lab["q1"].crash()
    wiped = lab["q2"]
    wiped.crash()
    for file in wiped.directory.iterdir():
        file.unlink()


def test_row_16_voter_when_it_returns_wiped_under_its_old_id_then_an_answered_entry_is_lost(lab: RaftLab) -> None:
    lose_the_leader_and_the_disk_of_q2(lab)
    lab["q2"].start()
    with pytest.raises(SafetyBroken, match="without Entry"):
        lab.run_until(lambda: lab.leader is not None)


def test_row_16_voter_when_it_returns_wiped_under_a_new_id_then_nothing_is_lost(lab: RaftLab) -> None:
    lose_the_leader_and_the_disk_of_q2(lab)
    returned = lab.add(Member("q2", "another", "q2.test:1"))
    for _ in range(300):
        lab.round()
    assert lab.leader is None
    assert not returned.machine.is_member
    # The one that holds the entry comes back; q2 is removed and added again.
    lab.cut.clear()
    lab["q1"].start()
    leader = lab.elect()
    for members in ([lab["q1"].member, lab["q3"].member], [lab["q1"].member, lab["q3"].member, returned.member]):
        payload = lab.propose_members(leader, members)
        lab.run_until(lambda payload=payload: payload in lab.answers)
    lab.settle()
    assert returned.state.cluster_id == leader.state.cluster_id
    lab.check_answers()


# Row 17: snapshots


def test_row_17_node_when_its_snapshot_is_damaged_then_does_not_start(tmp_path: Path) -> None:
    with RaftLab(tmp_path, ["q1"], history_entries=0) as lab:
        node = lab["q1"]
        for number in range(5):
            lab.commit(b"%d" % number)
        node.write_own_snapshot()
        node.trim_to_own_snapshot()
        node.crash()
        path = node.directory / SNAPSHOT
        good = path.read_bytes()
        for position in range(len(good)):
            path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
            with pytest.raises((StorageCorrupted, UnsupportedVersion)):
                node.start()
        path.unlink()
        with pytest.raises(StorageCorrupted, match="entries between them are missing"):
            node.start()
        path.write_bytes(good)
        node.start()
        lab.settle()


def follower_that_needs_a_snapshot(lab: RaftLab) -> tuple[LabNode, LabNode, list[tuple[str, str, bytes]]]:
    """The leader, a follower that lags behind its log, and the leader's chunks for it."""
    leader = lab.elect("q1")
    lab["q3"].crash()
    for number in range(10):
        lab.commit(b"%d" % number)
    leader.write_own_snapshot()
    leader.trim_to_own_snapshot()
    lab["q3"].start()
    for _ in range(100):
        kept = lab.take("snapshot_chunk")
        if kept:
            return leader, lab["q3"], kept
        lab.round()
    raise AssertionError(lab.describe())


def test_row_17_follower_when_a_snapshot_arrives_damaged_then_confirms_nothing(tmp_path: Path) -> None:
    with RaftLab(tmp_path, history_entries=0) as lab:
        leader, follower, chunks = follower_that_needs_a_snapshot(lab)
        before = follower.state.version
        for sender, _, chunk in chunks:
            message = quorum_pb2.ExchangeRequest.FromString(chunk)
            if message.snapshot_chunk.data:
                message.snapshot_chunk.data = message.snapshot_chunk.data[:-1] + b"?"
            follower.inbox.append((sender, message.SerializeToString()))
        lab.network.clear()
        for _ in range(3):
            follower.step()
            follower.sync()
        assert lab.refused_snapshots == 1
        assert follower.state.version == before
        replies = [quorum_pb2.ExchangeRequest.FromString(sent[2]) for sent in lab.take("append_reply")]
        assert replies
        assert not any(reply.append_reply.success for reply in replies)
        # The leader sends it again.
        lab.settle()
        assert follower.state.cluster_id == leader.state.cluster_id


def test_row_17_follower_when_a_snapshot_is_older_than_its_state_then_does_not_install_it(tmp_path: Path) -> None:
    with RaftLab(tmp_path, history_entries=0) as lab:
        _, follower, chunks = follower_that_needs_a_snapshot(lab)
        lab.settle()
        lab.commit(b"newer")
        lab.settle()
        version, installed = follower.state.version, lab.installed_snapshots
        follower.inbox.extend((sender, chunk) for sender, _, chunk in chunks)
        for _ in range(3):
            follower.step()
            follower.sync()
        assert (follower.state.version, lab.installed_snapshots) == (version, installed)
        lab.settle()


def test_row_17_node_when_it_writes_a_snapshot_of_its_own_then_takes_none_of_the_leader(tmp_path: Path) -> None:
    """Both are written to the same name, and the older of them must not come last."""

    async def main() -> None:
        me = Member("q1", "d1", "")
        node = RaftNode(
            me, (me,), tmp_path, disk=Disk(), send=lambda *_: None, limits=SnapshotLimits(entries=1, history_entries=0)
        )
        first = quorum_pb2.SnapshotChunk(first=True, data=b"x")
        node._take_chunk("q2:d2", first)
        assert node._incoming is not None
        node.state.version = 5
        node._snapshot_if_wanted()
        task = node._snapshot_task
        assert task is not None
        assert node._incoming is None
        node._take_chunk("q2:d2", first)
        assert node._incoming is None
        task.cancel()
        await node.close()

    asyncio.run(main())


# Row 18: sizes


# Around every multiple of the library's chunk, with room for what wraps a command.
SIZES = sorted(
    {130_982, 131_015, *range(130_976, 131_076, 4), *(k * 65_536 + d for k in (1, 2, 3, 16) for d in (-2, -1, 0, 1))}
)


def test_row_18_quorum_when_entries_have_any_size_then_commits_them(lab: RaftLab) -> None:
    for size in SIZES:
        lab.commit(b"%d" % size + bytes(size - len(b"%d" % size)))
    lab.settle()
    assert len(lab.answers) == len(SIZES)


def test_row_18_stock_library_when_an_entry_has_a_certain_size_then_never_stores_it() -> None:
    def stores(size: int) -> bool:
        leader, follower = Stock("a", "b"), Stock("b", "a")
        leader.campaign()
        leader.receive("b", {"type": "response_vote", "term": 1})
        leader.library._applyCommand(NO_OP + bytes(size - 1), None)
        for _ in range(5):
            leader.library._SyncObj__newAppendEntriesTime = 0
            leader.library.doTick()
            for receiver, sender in ((follower, leader), (leader, follower)):
                sent, sender.transport.sent = sender.transport.sent, []
                for _, message in sent:
                    receiver.receive(sender.library.selfNode.id, message)
        return any(len(entry[0]) == size for entry in follower.log)

    assert stores(130_000)
    with pytest.raises(EOFError):  # the last chunk was sent as if it were not the last
        stores(131_060)


def test_row_18_machine_when_the_library_sends_a_piece_of_an_entry_then_stops(lab: RaftLab) -> None:
    with pytest.raises(SafetyViolated, match="must not happen"):
        lab["q1"].machine.library_sends("q2:dq2", {"type": "append_entries", "transmission": "start"})


def test_row_18_proposal_when_it_is_larger_than_an_append_may_be_then_is_refused(
    lab: RaftLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = lab.elect()
    monkeypatch.setattr(raft_machine, "MAX_ENTRY_BYTES", 10)
    with pytest.raises(ValueError, match="above the limit"):
        lab.propose(leader, b"eleven bytes")


# Row 19: votes


def candidate_with_one_vote(five: RaftLab) -> LabNode:
    candidate = five["q1"]
    five.run_until(lambda: candidate.machine.electing or five.leader is not None)
    if not candidate.machine.electing:
        candidate.machine._campaigning = True
        leader = five.leader
        assert leader is not None
        leader.crash()
        five.network.clear()
        candidate.step()
    candidate.sync()
    assert candidate.machine.electing
    return candidate


def test_row_19_candidate_when_one_vote_arrives_twice_then_does_not_lead(five: RaftLab) -> None:
    five.elect("q2")
    five.settle()
    candidate = candidate_with_one_vote(five)
    vote = quorum_pb2.ExchangeRequest(term=candidate.machine.term, grant_vote=quorum_pb2.GrantVote())
    for _ in range(3):
        candidate.machine.receive(five["q3"].id, vote)
    assert not candidate.machine.leading
    candidate.machine.receive(five["q4"].id, vote)
    assert candidate.machine.leading


def test_row_19_stock_library_when_one_vote_arrives_twice_then_leads_with_two_of_five() -> None:
    stock = Stock("a", "bcde")
    stock.campaign()
    for _ in range(2):
        stock.receive("b", {"type": "response_vote", "term": 1})
    assert stock.library._isLeader()


# Row 20: the table of answered commands


def test_row_20_answered_commands_when_there_are_many_then_the_oldest_in_the_log_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_apply, "ANSWERED_LIMIT", 3)
    state = ClusterState(version=1)
    claim = metadata_pb2.Change(claim_controller=metadata_pb2.ClaimController(node="q1", cluster_id="c"))
    apply_entry(state, metadata_pb2.MetadataEntry(controller_epoch=1, changes=[claim]), version=2, term=1)

    def command(number: int, version: int) -> metadata_pb2.ChangeResult:
        change = metadata_pb2.Change(
            command_id=b"%d" % number, allocate_producer_ids=metadata_pb2.AllocateProducerIds(count=10)
        )
        entry = metadata_pb2.MetadataEntry(controller_epoch=1, changes=[change])
        return apply_entry(state, entry, version=version, term=1)[0]

    first = command(1, 3)
    assert command(1, 4) == first
    for number in (2, 3, 4):
        command(number, number + 3)
    assert list(state.answered) == [b"2", b"3", b"4"]
    loader = SnapshotLoader()
    for piece in encode_pieces(capture(state)):
        loader.add(piece)
    assert list(loader.finish().answered.items()) == list(state.answered.items())
    # Forgotten, so it is done once more: the limit is how long a caller may go on asking.
    command(1, 8)
    assert list(state.answered) == [b"3", b"4", b"1"]


# Every row has its test


def test_rows_when_the_page_lists_them_then_each_names_a_test_that_exists() -> None:
    root = Path(__file__).parents[2]
    rows = re.findall(r"^\| (\d+) \|.*\|$", (root / "docs" / "raft.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, 21))
    source = "".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", (root / "docs" / "raft.md").read_text())
    assert [name for name in named if f"def {name}(" not in source] == []
    for row in rows:
        assert re.search(rf"`test_row_(\d+_)*{row}_", (root / "docs" / "raft.md").read_text()), row
