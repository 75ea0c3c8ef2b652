"""Who a quorum node is: a name and a directory. Whoever has forgotten something is somebody else, or nobody."""

from pathlib import Path

import pytest

from lograft.contract.disk import Disk
from lograft.contract.errors import DirectoryLocked, StorageCorrupted, WrongDirectory
from lograft.metadata_quorum.core.model import ClusterState, Member
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.metadata_quorum.identity import NODE_META, Identity, first_quorum, members_to_proto
from lograft.metadata_quorum.journal import JOURNAL, METADATA, Journal
from lograft.metadata_quorum.snapshot_file import write_snapshot
from lograft.v1 import quorum_pb2

pytestmark = pytest.mark.requirement("R24", "R27")

Q1, Q2, Q3 = (Member(f"q{n}", f"d{n}", f"q{n}.test:1") for n in (1, 2, 3))
CONFIGURED = {member.name: member.address for member in (Q1, Q2, Q3)}


def opened(directory: Path, name: str = "q1") -> Identity:
    identity = Identity(directory, name, Disk())
    identity.release()
    return identity


# The directory


def test_identity_when_the_directory_is_new_then_gets_a_random_id_and_keeps_it(tmp_path: Path) -> None:
    first = opened(tmp_path / "one")
    assert opened(tmp_path / "one").directory_id == first.directory_id
    assert opened(tmp_path / "two").directory_id != first.directory_id
    assert first.first_members == ()


def test_identity_when_members_are_remembered_then_keeps_them(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "q1", Disk())
    identity.remember((Q1, Q2))
    identity.release()
    assert opened(tmp_path).first_members == (Q1, Q2)


def test_identity_when_two_processes_want_the_directory_then_the_second_is_refused(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "q1", Disk())
    with pytest.raises(DirectoryLocked):
        Identity(tmp_path, "q1", Disk())
    identity.release()


def test_identity_when_the_directory_is_another_nodes_then_is_refused_and_unlocked(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(WrongDirectory):
        Identity(tmp_path, "q2", Disk())
    opened(tmp_path)


def test_identity_when_the_journal_is_missing_then_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / JOURNAL).unlink()
    with pytest.raises(StorageCorrupted, match="must not vote any more"):
        opened(tmp_path)


@pytest.mark.parametrize("trace", ["an entry", "a term", "a snapshot"])
def test_identity_when_its_name_is_missing_beside_a_past_then_is_refused(tmp_path: Path, trace: str) -> None:
    opened(tmp_path)
    (tmp_path / NODE_META).unlink()
    journal = Journal(tmp_path, Disk())
    if trace == "an entry":
        journal.add(METADATA + b"x", 2, 1)
    elif trace == "a term":
        journal.setCurrentTerm(1, "q1:d1")
    else:
        write_snapshot(Disk(), tmp_path, encode_pieces(capture(ClusterState(version=5))))
    journal.write_block(journal.take_block())
    journal.close()
    with pytest.raises(StorageCorrupted, match="the file is missing"):
        opened(tmp_path)


def test_identity_when_killed_before_it_wrote_its_name_then_begins_anew(tmp_path: Path) -> None:
    Journal(tmp_path, Disk()).close()
    assert opened(tmp_path).name == "q1"


def test_identity_when_its_name_is_damaged_then_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    path = tmp_path / NODE_META
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(StorageCorrupted):
            opened(tmp_path)


# The first quorum


def hello(member: Member, *members: Member) -> quorum_pb2.HelloResponse:
    return quorum_pb2.HelloResponse(
        name=member.name, directory_id=member.directory_id, members=members_to_proto(members)
    )


def test_first_quorum_when_all_are_new_then_all_agree() -> None:
    answers = {member.name: hello(member) for member in (Q1, Q2, Q3)}
    found = {
        first_quorum(me, CONFIGURED, {name: answer for name, answer in answers.items() if name != me.name})
        for me in (Q1, Q2, Q3)
    }
    assert found == {(Q1, Q2, Q3)}


def test_first_quorum_when_somebody_is_silent_then_waits() -> None:
    waiting = first_quorum(Q1, CONFIGURED, {"q2": hello(Q2)})
    assert waiting == "waiting for q3: the first start needs every node of the configuration"


def test_first_quorum_when_one_has_begun_with_us_then_joins_it() -> None:
    assert first_quorum(Q1, CONFIGURED, {"q2": hello(Q2, Q1, Q2, Q3)}) == (Q1, Q2, Q3)


def test_first_quorum_when_we_were_wiped_then_does_not_begin_a_second() -> None:
    wiped = Q1._replace(directory_id="another")
    answer = first_quorum(wiped, CONFIGURED, {"q2": hello(Q2, Q1, Q2, Q3), "q3": hello(Q3)})
    assert isinstance(answer, str)
    assert "remove q1 from the quorum, then add it again" in answer


def test_first_quorum_when_there_is_one_without_us_then_waits_to_be_added() -> None:
    for me, configured in ((Q3, CONFIGURED), (Member("q9", "d9", ""), CONFIGURED)):
        answer = first_quorum(me, configured, {"q1": hello(Q1, Q1, Q2)})
        assert isinstance(answer, str)
        assert answer.startswith("waiting to be added")


def test_first_quorum_when_we_are_not_configured_then_never_begins_one() -> None:
    answer = first_quorum(Member("q9", "d9", ""), CONFIGURED, {m.name: hello(m) for m in (Q1, Q2, Q3)})
    assert answer == "waiting to be added (lograft quorum add q9)"


def test_first_quorum_when_alone_in_the_configuration_then_begins_at_once() -> None:
    assert first_quorum(Q1, {"q1": Q1.address}, {}) == (Q1,)
