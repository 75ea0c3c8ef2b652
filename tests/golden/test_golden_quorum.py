"""The files of a quorum node, as they were when they were frozen.

``LOGRAFT_REWRITE_GOLDEN=1`` writes the file again, which is right only together with a new version of the format.
"""

import os
import re
from pathlib import Path

import pytest

from lograft.contract.disk import Disk
from lograft.contract.small_files import Kind, decode_small_file, encode_small_file
from lograft.metadata_quorum.core.model import ClusterState, Member
from lograft.metadata_quorum.core.overlap import Entry
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.metadata_quorum.identity import members_to_proto
from lograft.metadata_quorum.journal import FIRST_ENTRY, MEMBERS, METADATA, NO_OP, Journal
from lograft.metadata_quorum.snapshot_file import SNAPSHOT, load_snapshot, write_snapshot
from lograft.v1 import quorum_pb2

pytestmark = pytest.mark.requirement("R24", "R32")

FILE = Path(__file__).parent / "files" / "quorum.hex"
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "journal.md"
REWRITE = os.environ.get("LOGRAFT_REWRITE_GOLDEN") == "1"

VOTERS = (Member("q1", "0123456789abcdef" * 2, "one.test:1"), Member("q2", "fedcba9876543210" * 2, "two.test:2"))
META = quorum_pb2.NodeMeta(name="q1", directory_id=VOTERS[0].directory_id, first_members=members_to_proto(VOTERS))
STATE = ClusterState(
    version=42, term=7, previous_term=6, cluster_id="c1", controller_epoch=7, controller_node="q1", members=VOTERS
)
STATE.answered = {b"command %d" % number: b"" for number in range(8)}
LOG = [FIRST_ENTRY, Entry(NO_OP, 2, 1), Entry(METADATA + b"one", 3, 1), Entry(MEMBERS + b"two", 4, 3)]


def write_files(directory: Path) -> dict[str, bytes]:
    """A journal of three blocks, a snapshot of several pieces, and the name."""
    journal = Journal(directory, Disk())
    journal.setCurrentTerm(1, "q1:d")
    for entry in (*LOG[1:3], Entry(METADATA + b"cut off", 4, 1)):
        journal.add(*entry)
    journal.write_block(journal.take_block())
    journal.setCurrentTerm(3, None)
    journal.deleteEntriesFrom(3)
    journal.add(*LOG[3])
    journal.write_block(journal.take_block())
    journal.close()
    write_snapshot(Disk(), directory, encode_pieces(capture(STATE), piece_bytes=64))
    return {
        "journal": journal.path.read_bytes(),
        "snapshot": (directory / SNAPSHOT).read_bytes(),
        "node.meta": encode_small_file(Kind.NODE_META, META),
    }


@pytest.fixture
def golden(tmp_path: Path) -> dict[str, bytes]:
    if REWRITE:
        folder = tmp_path / "rewritten"
        folder.mkdir()
        text = "".join(f"{name} {content.hex()}\n" for name, content in write_files(folder).items())
        FILE.write_text(f"# Written by tests/golden/test_golden_quorum.py: name and bytes in hex.\n{text}")
    lines = [line.split(" ") for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {name: bytes.fromhex(content) for name, content in lines}


def test_golden_quorum_files_when_written_again_then_are_the_same(golden: dict[str, bytes], tmp_path: Path) -> None:
    written = write_files(tmp_path)
    assert {name: content.hex() for name, content in written.items()} == {
        name: content.hex() for name, content in golden.items()
    }


def test_golden_journal_when_opened_then_holds_what_was_written(golden: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(golden["journal"])
    journal = Journal(tmp_path, Disk())
    journal.close()
    assert (journal.entries, journal.term, journal.voted_for, journal.cut_bytes) == (LOG, 3, None, 0)


def test_golden_snapshot_when_loaded_then_is_the_state(golden: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / SNAPSHOT).write_bytes(golden["snapshot"])
    assert load_snapshot(tmp_path / SNAPSHOT) == STATE


def test_golden_node_meta_when_read_then_is_as_it_was(golden: dict[str, bytes]) -> None:
    assert decode_small_file(golden["node.meta"], Kind.NODE_META, quorum_pb2.NodeMeta, Path("node.meta")) == META
    assert golden["node.meta"][6] == 5


# By the tables of the page


def tables() -> list[dict[str, tuple[int, int]]]:
    """Field to position and size, for each table of the page."""
    found: list[dict[str, tuple[int, int]]] = []
    for position, size, name in re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE):
        if position == "0":
            found.append({})
        assert int(position) == sum(width for _, width in found[-1].values())
        found[-1][name] = int(position), int(size)
    return found


def read(table: dict[str, tuple[int, int]], data: bytes) -> dict[str, int]:
    return {name: int.from_bytes(data[at : at + size], "little") for name, (at, size) in table.items()}


def width(table: dict[str, tuple[int, int]]) -> int:
    return sum(size for _, size in table.values())


def crc32c_bit_by_bit(data: bytes) -> int:
    """CRC-32C from its definition, independent of the library that the code uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_golden_journal_when_read_by_its_table_then_has_the_documented_bytes(golden: dict[str, bytes]) -> None:
    block, data, number = tables()[0], golden["journal"], 0
    kinds = []
    while data:
        header = read(block, data)
        body = data[width(block) :][: header["body_bytes"]]
        assert header == {
            "magic": int.from_bytes(b"LGRJ", "little"),
            "version": 1,
            "body_bytes": len(body),
            "number": number,
            "body_crc32c": crc32c_bit_by_bit(body),
            "header_crc32c": crc32c_bit_by_bit(data[: width(block) - 4]),
        }
        kinds.append([record.WhichOneof("kind") for record in quorum_pb2.JournalBlock.FromString(body).records])
        data, number = data[width(block) + len(body) :], number + 1
    assert kinds == [
        ["hard_state", "append"],
        ["hard_state", "append", "append", "append"],
        ["hard_state", "truncate_from", "append"],
    ]


def test_golden_snapshot_when_read_by_its_tables_then_has_the_documented_bytes(golden: dict[str, bytes]) -> None:
    _, header, frame = tables()
    data = golden["snapshot"]
    assert read(header, data) == {"magic": int.from_bytes(b"LGRS", "little"), "version": 1}
    data = data[width(header) :]
    pieces = []
    while data:
        found = read(frame, data)
        pieces.append(data[width(frame) :][: found["piece_bytes"]])
        assert found == {
            "number": len(pieces) - 1,
            "piece_bytes": len(pieces[-1]),
            "piece_crc32c": crc32c_bit_by_bit(data[:4] + pieces[-1]),
        }
        data = data[width(frame) + len(pieces[-1]) :]
    assert len(pieces) > 2
    assert pieces == list(encode_pieces(capture(STATE), piece_bytes=64))
