"""The command line's `quorum` and `metadata` commands without a quorum, and the files that `recover` works on."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lograft.cli.metadata import ChangePrinter, plain_fields, state_fields
from lograft.cli.quorum_status import FAR_BEHIND, Answer, ask_all, assess, report_fields
from lograft.cli.root import root
from lograft.contract.directories import DirectoryLock
from lograft.contract.disk import Disk
from lograft.contract.errors import MembershipRefused, QuorumUnavailable
from lograft.metadata_quorum.core.invariants import violations
from lograft.metadata_quorum.core.model import Credential, Member
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.metadata_quorum.identity import Identity, members_to_proto
from lograft.metadata_quorum.journal import MEMBERS, METADATA, NO_OP, Journal
from lograft.metadata_quorum.recover import INDEX_JUMP, PARTITION_EPOCH_JUMP, TERM_JUMP, StoppedNode, stopped_node
from lograft.metadata_quorum.snapshot_file import load_snapshot, write_snapshot
from lograft.v1 import cluster_pb2, metadata_pb2, quorum_pb2

TRIO = (Member("q1", "d1", "h:1"), Member("q2", "d2", "h:2"), Member("q3", "d3", "h:3"))
SECRET = b"\xab\xcd"


def run(*arguments: object, code: int = 0, typed: str | None = None, **environment: str) -> Result:
    result = CliRunner().invoke(
        root,
        [str(each) for each in arguments],
        prog_name="lograft",
        input=typed,
        env={"LOGRAFT_QUORUM": None, **environment},
    )
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    assert "\x1b" not in result.output
    return result


# -- status: what is concluded -------------------------------------------------------------------------------------


def answer(name: str, *, state: str = "following", members=TRIO, applied: int = 10, **fields) -> Answer:
    known = {member.name: member.directory_id for member in TRIO}
    status = quorum_pb2.StatusResponse(
        node=name,
        directory_id=known.get(name, f"d-{name}"),
        state=state,
        term=3,
        commit_index=applied,
        applied_index=applied,
        cluster_id="c",
        members=members_to_proto(members),
    )
    status.controller = state == "leading"
    for field, value in fields.items():
        setattr(status, field, value)
    return Answer(name, f"h:{name[1:]}", status)


def silent(name: str, address: str) -> Answer:
    return Answer(name, address, None, "unavailable")


LEADER = answer("q1", state="leading")


def test_status_when_all_follow_one_then_healthy() -> None:
    report = assess([LEADER, answer("q2"), answer("q3", applied=9)])
    assert report.healthy
    assert report.leader == "q1"
    assert report.lags == {"d1": 0, "d2": 0, "d3": 1}


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([answer("q1"), answer("q2")], "nobody leads"),
        ([answer("q2", leader="q1"), silent("q1", "h:1")], "some believe that q1 does"),
        ([LEADER, answer("q2"), silent("q3", "h:3")], "q3 does not answer (unavailable)"),
        ([LEADER, answer("q2"), silent("", "h:9")], "h:9 does not answer"),
        (
            [answer("q1", state="leading", applied=FAR_BEHIND + 11), answer("q2"), answer("q3")],
            "q2 is 1,001 entries behind q1",
        ),
        ([LEADER, answer("q2", members=TRIO[:2])], "q2 says q1 (d1), q2 (d2)"),
        ([LEADER, answer("q2", cluster_id="other")], "different clusters: c, other"),
        ([LEADER, answer("q2", problem="disk full")], "q2: disk full"),
        ([LEADER, answer("q2", state="leading", term=2)], "q2 still believes to lead, in the older term 2"),
        ([answer("q1", state="leading", controller=False)], "not the controller yet"),
    ],
)
def test_status_when_something_is_wrong_then_says_what(answers: list[Answer], problem: str) -> None:
    report = assess(answers)
    assert not report.healthy
    assert problem in "\n".join(report.problems)
    assert json.dumps(report_fields(report))


def test_status_when_a_stranger_is_silent_or_waits_then_only_remarks() -> None:
    report = assess(
        [
            LEADER,
            answer("q2"),
            answer("q3"),
            silent("q9", "h:9"),
            answer("q4", state="waiting", problem="waiting for q1"),
        ]
    )
    assert report.healthy
    assert report.remarks == ("q9 does not answer (unavailable), and is not a member", "q4: waiting for q1")


def test_status_when_a_wiped_member_waits_then_it_is_no_voter() -> None:
    wiped = answer("q2", state="not a member", members=(), directory_id="new")
    report = assess([LEADER, wiped, answer("q3")])
    assert report.lags.keys() == {"d1", "d3"}
    assert report.problems == ("q2 has another directory than the member of that name: remove it, then add it",)
    assert report.remarks == ("q2: not a member any more",)


async def _ask_trio(address: str) -> quorum_pb2.StatusResponse:
    known = {"h:1": LEADER, "also:1": LEADER, "h:2": answer("q2")}
    if address not in known:
        raise QuorumUnavailable(f"{address}: unavailable")
    status = known[address].status
    assert status is not None
    return status


def test_status_when_few_addresses_are_given_then_asks_all_members_once() -> None:
    import asyncio

    answers = asyncio.run(ask_all(_ask_trio, {"h:1": "h:1", "also:1": "also:1", "h:3": "h:3"}))
    assert [(a.name, a.address, a.status is not None) for a in answers] == [
        ("q1", "h:1", True),
        ("q2", "h:2", True),
        ("q3", "h:3", False),
    ]
    assert answers[2].error == "unavailable"


# -- usage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["", "status", "transfer", "add", "remove", "recover", "run"],
)
def test_quorum_help_when_asked_then_explains(command: str) -> None:
    assert "Usage: lograft quorum" in run("quorum", *command.split(), "--help").output


def test_quorum_when_no_servers_are_given_then_says_how() -> None:
    assert "LOGRAFT_QUORUM" in run("quorum", "status", code=2).output
    assert "'foo' is not host:port" in run("quorum", "status", "--servers", "foo", code=2).output
    assert "'q2:0' is not host:port" in run("quorum", "add", "q2", "q2:0", "--servers", "q1:1", code=2).output


def test_status_when_nobody_answers_then_fails_in_plain_words() -> None:
    result = run("quorum", "status", code=1, LOGRAFT_QUORUM="127.0.0.1:1")
    assert "problem: nobody leads" in result.output
    told = json.loads(run("quorum", "status", "--json", code=1, LOGRAFT_QUORUM="127.0.0.1:1").output)
    assert told["leader"] is None
    assert [node["answers"] for node in told["nodes"]] == [False]


def test_dump_when_nobody_answers_then_fails_in_plain_words() -> None:
    result = run("metadata", "dump", "--node", "127.0.0.1:1", code=1)
    assert result.output.startswith("error: the metadata quorum is not available: 127.0.0.1:1")


# -- metadata ------------------------------------------------------------------------------------------------------


def test_dump_fields_when_there_are_users_then_no_credentials(trio) -> None:
    trio.configure(retention_ms="1000")
    state = trio.state
    state.users["ann"] = Credential("scrypt", SECRET, SECRET, 1, 2, 3)
    told = state_fields(state)
    assert SECRET.hex() not in json.dumps(told)
    assert told["users"] == [{"name": "ann", "scheme": "scrypt"}]
    assert told["config"] == {"retention.ms": "1000"}
    (topic,) = told["topics"]
    assert topic["partitions"][0]["replicas"] == (1, 2, 3)
    assert [broker["broker_id"] for broker in told["brokers"]] == [1, 2, 3]


def test_plain_fields_when_maps_enums_bytes_and_absent_fields_then_json() -> None:
    alter = metadata_pb2.AlterConfig(resource=metadata_pb2.CONFIG_RESOURCE_TOPIC, name="t", set={"b": "1", "a": "2"})
    assert json.loads(json.dumps(plain_fields(alter))) == {
        "resource": "CONFIG_RESOURCE_TOPIC",
        "name": "t",
        "set": {"a": "2", "b": "1"},
        "remove": [],
    }
    user = metadata_pb2.SetUser(name="ann", credential=metadata_pb2.Credential(salt=SECRET, hash=SECRET, n=4))
    assert plain_fields(user)["credential"] == {"scheme": "", "n": 4, "r": 0, "p": 0}
    assert "leader" not in plain_fields(metadata_pb2.PartitionChange(in_sync=[1]))


def watched(version: int, *changes: metadata_pb2.Change) -> cluster_pb2.WatchedEntry:
    entry = metadata_pb2.MetadataEntry(controller_epoch=1, changes=changes)
    return cluster_pb2.WatchedEntry(version=version, term=1, entry=entry.SerializeToString() if changes else b"")


def deleted_user(name: str) -> metadata_pb2.Change:
    return metadata_pb2.Change(delete_user=metadata_pb2.DeleteUser(name=name))


def test_watch_when_it_begins_with_a_snapshot_then_knows_what_was_rejected(trio) -> None:
    lines: list[dict] = []
    printer = ChangePrinter(None, lines.append)
    version = trio.state.version
    for piece in encode_pieces(capture(trio.state), piece_bytes=100):
        printer.take(cluster_pb2.WatchResponse(snapshot_pieces=[piece], cluster_id="c1"))
    change = metadata_pb2.Change(barrier=metadata_pb2.Barrier())
    printer.take(
        cluster_pb2.WatchResponse(entries=[watched(version + 1), watched(version + 2, change, deleted_user("nobody"))])
    )
    assert lines[0] == {"version": version + 2, "kind": "barrier"}
    assert lines[1]["kind"] == "delete_user"
    assert "nobody" in lines[1]["rejected"]
    # Another node repeats what was seen.
    printer.take(cluster_pb2.WatchResponse(entries=[watched(version + 2, change)]))
    assert len(lines) == 2


def test_watch_when_history_is_gone_then_says_what_is_left_out(trio) -> None:
    lines: list[dict] = []
    printer = ChangePrinter(2, lines.append)
    printer.take(cluster_pb2.WatchResponse(entries=[watched(3, deleted_user("nobody"))], cluster_id="c1"))
    assert lines.pop() == {"version": 3, "kind": "delete_user", "name": "nobody"}
    assert printer.state.cluster_id == "c1"
    for piece in encode_pieces(capture(trio.state)):
        printer.take(cluster_pb2.WatchResponse(snapshot_pieces=[piece]))
    assert lines == [{"version": trio.state.version, "kind": "snapshot", "left_out_after": 3}]


# -- recover -------------------------------------------------------------------------------------------------------


def entry(epoch: int, **kind) -> bytes:
    return metadata_pb2.MetadataEntry(controller_epoch=epoch, changes=[metadata_pb2.Change(**kind)]).SerializeToString()


def make_node(folder: Path, *, users: int = 3, members: tuple[Member, ...] = TRIO) -> Path:
    """The files of a stopped q1 whose log has some users, the last of which was perhaps never committed."""
    folder.mkdir(exist_ok=True)
    disk = Disk()
    identity = Identity(folder / "q1", "q1", disk)
    identity.remember(members)
    journal = Journal(identity.directory, disk)
    journal.setCurrentTerm(5, "q2:d2")
    claim = metadata_pb2.ClaimController(node="q2", cluster_id="c1")
    journal.add(METADATA + entry(4, claim_controller=claim), 2, 4)
    if members:
        new = metadata_pb2.SetQuorumMembers(members=members_to_proto(members))
        journal.add(MEMBERS + entry(4, set_quorum_members=new), 3, 4)
    for number in range(users):
        user = metadata_pb2.SetUser(name=f"u{number}", credential=metadata_pb2.Credential(scheme="scrypt"))
        journal.add(METADATA + entry(4, set_user=user), journal.last_index + 1, 4)
    journal.add(NO_OP, journal.last_index + 1, 5)
    journal.write_block(journal.take_block())
    journal.close()
    identity.release()
    config = folder / "q1.toml"
    config.write_text('name = "q1"\ndirectory = "q1"\nlisten = "127.0.0.1:1"\n')
    return config


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_recover_when_dry_run_then_shows_and_changes_nothing(tmp_path: Path) -> None:
    config = make_node(tmp_path)
    before = files(tmp_path / "q1")
    shown = run("quorum", "recover", "--config", config, "--dry-run").output
    assert "last index            7" in shown
    told = json.loads(run("quorum", "recover", "--config", config, "--dry-run", "--json").output)
    assert (told["last_term"], told["last_index"], told["term"]) == (5, 7, 5)
    assert [member["name"] for member in told["members"]] == ["q1", "q2", "q3"]
    assert files(tmp_path / "q1") == before


@pytest.mark.parametrize("typed", ["q2\n", "yes\n", ""])
def test_recover_when_the_name_is_not_typed_then_changes_nothing(tmp_path: Path, typed: str) -> None:
    config = make_node(tmp_path)
    before = files(tmp_path / "q1")
    result = run("quorum", "recover", "--config", config, code=1, typed=typed)
    assert "q2, q3 must NEVER run again" in result.output
    assert "nothing was changed" in result.output
    assert files(tmp_path / "q1") == before


def test_recover_when_done_then_one_new_voter_with_the_whole_log(tmp_path: Path) -> None:
    config = make_node(tmp_path)
    with stopped_node(tmp_path / "q1", "q1") as node:
        old = node.standing
    assert "q1 is a quorum of one now" in run("quorum", "recover", "--config", config, typed="q1\n").output
    identity = Identity(tmp_path / "q1", "q1", Disk())
    identity.release()
    me = Member("q1", identity.directory_id, "127.0.0.1:1")
    assert identity.directory_id != old.directory_id
    assert identity.first_members == (me,)
    state = load_snapshot(tmp_path / "q1" / "snapshot")
    assert violations(state) == []
    assert state.members == (me,)
    assert list(state.users) == ["u0", "u1", "u2"]
    assert (state.version, state.term) == (7 + INDEX_JUMP, 5 + TERM_JUMP)
    with stopped_node(tmp_path / "q1", "q1") as node:
        assert (node.standing.last_index, node.standing.last_term) == (state.version, state.term)
        assert node.standing.term == state.term


def test_recover_when_there_are_partitions_then_no_epoch_is_given_twice(tmp_path: Path, trio) -> None:
    make_node(tmp_path, users=0)
    trio.state.members = TRIO
    before = trio.partition()
    producer_id, broker_epoch = trio.state.next_producer_id, trio.state.next_broker_epoch
    trio.state.version = trio.state.term = 9
    write_snapshot(Disk(), tmp_path / "q1", encode_pieces(capture(trio.state)))
    with stopped_node(tmp_path / "q1", "q1") as node:
        node.recover("h:1")
    state = load_snapshot(tmp_path / "q1" / "snapshot")
    after = state.topics["id-t"].partitions[0]
    assert after.leader_epoch == before.leader_epoch + PARTITION_EPOCH_JUMP
    assert after.partition_epoch == before.partition_epoch + PARTITION_EPOCH_JUMP
    assert after.in_sync == before.in_sync
    assert state.next_producer_id > producer_id + 1_000_000
    assert state.next_broker_epoch > broker_epoch + 1_000
    assert violations(state) == []


class Breaking(Disk):
    """Fails at one of the calls that change something."""

    def __init__(self, good_calls: int) -> None:
        self.good_calls = good_calls

    def _call(self) -> None:
        self.good_calls -= 1
        if self.good_calls < 0:
            raise OSError(5, "broken")

    def rename(self, source: Path, target: Path) -> None:
        self._call()
        super().rename(source, target)
        self._call()

    def write(self, *arguments, **options) -> None:
        self._call()
        super().write(*arguments, **options)


def test_recover_when_interrupted_anywhere_then_never_half_a_voter_and_can_be_repeated(tmp_path: Path) -> None:
    for good_calls in range(100):
        folder = tmp_path / str(good_calls)
        make_node(folder)
        broke = True
        with stopped_node(folder / "q1", "q1") as node:
            old_id = node.standing.directory_id
            node._disk = Breaking(good_calls)
            try:
                node.recover("h:1")
                broke = False
            except OSError:
                pass
        with stopped_node(folder / "q1", "q1") as node:
            now = node.standing
            if now.directory_id == old_id:
                assert now.members == TRIO, "the old voter belongs to the old quorum, as if nothing had been begun"
            else:
                ids = {member.directory_id for member in now.members}
                assert ids in ({"d1", "d2", "d3"}, {now.directory_id}), "no member of the old one, or a quorum of one"
                if ids == {now.directory_id}:
                    assert now.term == now.last_term >= 5 + TERM_JUMP
            after = node.recover("h:1")
        assert [member.directory_id for member in after.members] == [after.directory_id]
        assert list(load_snapshot(folder / "q1" / "snapshot").users) == ["u0", "u1", "u2"]
        if not broke:
            assert good_calls > 5
            return
    pytest.fail("it never got through")


def test_recover_when_it_runs_or_is_empty_or_no_member_then_refused(tmp_path: Path) -> None:
    config = make_node(tmp_path)
    lock = DirectoryLock(tmp_path / "q1")
    assert "in use by another process" in run("quorum", "recover", "--config", config, "--yes", code=1).output
    lock.release()
    with stopped_node(tmp_path / "q1", "q1") as node, pytest.raises(MembershipRefused, match="never been part"):
        _without_members(node, ()).check()
    with stopped_node(tmp_path / "q1", "q1") as node, pytest.raises(MembershipRefused, match="not a member"):
        _without_members(node, TRIO[1:]).check()
    empty = tmp_path / "empty.toml"
    empty.write_text('name = "q1"\ndirectory = "nothing"\nlisten = "127.0.0.1:1"\n')
    assert "it holds no quorum node" in run("quorum", "recover", "--config", empty, "--dry-run", code=1).output
    assert not (tmp_path / "nothing").exists()


def _without_members(node: StoppedNode, members: tuple[Member, ...]) -> StoppedNode:
    from dataclasses import replace

    node.standing = replace(node.standing, members=members)
    return node


def test_recover_when_the_journal_is_damaged_then_refused_with_the_way_back(tmp_path: Path) -> None:
    config = make_node(tmp_path)
    journal = tmp_path / "q1" / "journal"
    data = bytearray(journal.read_bytes())
    data[40] ^= 1
    journal.write_bytes(data)
    told = run("quorum", "recover", "--config", config, "--yes", code=1).output
    assert f"error: {journal} is damaged" in told
    assert "docs/quorum.md" in told
    assert "lograft log verify" not in told
