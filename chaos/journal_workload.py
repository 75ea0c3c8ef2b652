"""A process that keeps a quorum node's files until something happens to it, and a judge of what it left behind.

It makes a directory its own, then writes blocks of entries, cuts the log, votes, takes snapshots and trims, and
installs snapshots, as a quorum node does. Before each step it says what the files will hold, and after it that they do,
each in one line and one system call: under the power-loss shim these are marks in one order with the system calls.
"""

import hashlib
import json
import os
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lograft.contract.disk import Disk
from lograft.contract.errors import LogError
from lograft.metadata_quorum.core.model import ClusterState
from lograft.metadata_quorum.core.overlap import Entry
from lograft.metadata_quorum.core.snapshot import capture, encode_pieces
from lograft.metadata_quorum.identity import Identity
from lograft.metadata_quorum.journal import FIRST_ENTRY, METADATA, NO_OP, Journal
from lograft.metadata_quorum.snapshot_file import SNAPSHOT, load_snapshot, write_snapshot

NAME = "q1"
_HISTORY_ENTRIES = 5


class Careless(Disk):
    """Forgets to sync the journal: the test must find out."""

    def write(self, file: int, buffers: object, position: int, *, durable: bool = False) -> None:  # noqa: ARG002
        """Write, and leave it at that."""
        super().write(file, buffers, position)  # type: ignore[arg-type]


@dataclass(slots=True)
class Held:
    """What the files hold, as the workload sees it."""

    directory_id: str = ""
    term: int = 0
    voted_for: str | None = None
    last_index: int = FIRST_ENTRY.index
    # The least that a snapshot stands for.
    snapshot: int = 0
    # Index to a fingerprint of each entry above the snapshot that was installed last.
    log: dict[str, str] = field(default_factory=dict)


class Workload:
    """One life of a node's files."""

    def __init__(self, directory: Path, marks: Path, seed: int, disk: Disk) -> None:
        self._marks = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._chance = random.Random(seed)  # noqa: S311 - a seed, so that a run can be repeated
        self._disk = disk
        self._directory = directory
        self._identity = Identity(directory, NAME, disk)
        self._journal = Journal(directory, disk)
        self._held = Held(directory_id=self._identity.directory_id)
        # Never cut below: it is committed.
        self._committed = FIRST_ENTRY.index
        self._say("holds")

    def run(self, steps: int) -> None:
        """Live for so many steps."""
        for _ in range(steps):
            self._write_block()
            chance = self._chance.random()
            if chance < 0.05:
                self._snapshot_and_trim()
            elif chance < 0.08:
                self._install()
        self._journal.close()
        self._identity.release()

    def _say(self, word: str) -> None:
        os.write(self._marks, f"{word} {json.dumps(asdict(self._held))}\n".encode())

    def _write_block(self) -> None:
        journal, held = self._journal, self._held
        if self._chance.random() < 0.2:
            held.term, held.voted_for = held.term + 1, self._chance.choice([None, "q1:d", "q2:d"])
            journal.setCurrentTerm(held.term, held.voted_for)
        if self._chance.random() < 0.1 and journal.last_index > self._committed:
            cut = self._chance.randint(self._committed + 1, journal.last_index)
            journal.deleteEntriesFrom(cut - journal.first_index)
            held.log = {index: each for index, each in held.log.items() if int(index) < cut}
        for _ in range(self._chance.randint(0, 4)):
            size = self._chance.choice([10, 300, 3000])
            journal.add(METADATA + self._chance.randbytes(size), journal.last_index + 1, held.term)
            held.log[str(journal.last_index)] = fingerprint(journal.entries[-1])
        held.last_index = journal.last_index
        if journal.dirty:
            self._say("will-hold")
            journal.write_block(journal.take_block())
            self._say("holds")
        self._committed = self._chance.randint(self._committed, journal.last_index)

    def _snapshot_and_trim(self) -> None:
        version, term = self._committed, self._journal.term_at(self._committed)
        self._write_snapshot(version, term)
        self._held.snapshot = version
        self._say("holds")
        self._journal.trim(version - _HISTORY_ENTRIES)

    def _install(self) -> None:
        held = self._held
        version = held.snapshot = held.last_index = self._committed = self._journal.last_index + 10
        held.log = {}
        self._say("will-hold")
        self._write_snapshot(version, held.term)
        self._journal.restart_at(Entry(NO_OP, version, held.term))
        self._say("holds")

    def _write_snapshot(self, version: int, term: int) -> None:
        state = ClusterState(version=version, term=term, cluster_id=self._chance.randbytes(700).hex())
        write_snapshot(self._disk, self._directory, encode_pieces(capture(state)))


def fingerprint(entry: Entry) -> str:
    """A short one of an entry."""
    return f"{entry.term}:{hashlib.blake2b(entry.command, digest_size=6).hexdigest()}"


class Promises:
    """What the files must hold: the last that was told, or what was being written."""

    def __init__(self) -> None:
        self.held: Held | None = None
        self.maybe: Held | None = None

    def take(self, line: str) -> None:
        """Take in one mark."""
        word, _, content = line.partition(" ")
        told = Held(**json.loads(content))
        if word == "holds":
            self.held, self.maybe = told, None
        else:
            self.maybe = told

    @property
    def allowed(self) -> Iterable[Held]:
        """The states that the files may be in."""
        return [each for each in (self.held, self.maybe) if each is not None]


def judge(directory: Path, promises: Promises) -> Iterator[str]:
    """Open the files as a node does, and say in words how they break a promise. They are changed by that."""
    try:
        identity = Identity(directory, NAME, Disk())
        identity.release()
        path = directory / SNAPSHOT
        state = load_snapshot(path) if path.exists() else ClusterState(version=FIRST_ENTRY.index)
        journal = Journal(
            directory,
            Disk(),
            keep_from=state.version - _HISTORY_ENTRIES,
            placeholder=Entry(NO_OP, state.version, state.term),
        )
        journal.close()
    except LogError as error:
        yield f"does not open: {error}"
        return
    problems = [list(_differences(identity.directory_id, state.version, journal, held)) for held in promises.allowed]
    if problems and all(problems):
        yield "; or ".join(map(", ".join, problems))


def _differences(directory_id: str, snapshot: int, journal: Journal, held: Held) -> Iterator[str]:
    if directory_id != held.directory_id:
        yield "the directory has another id"
    if (journal.term, journal.voted_for) != (held.term, held.voted_for):
        yield f"term and vote are {journal.term}, {journal.voted_for} and not {held.term}, {held.voted_for}"
    if journal.last_index != held.last_index:
        yield f"the log ends at {journal.last_index} and not at {held.last_index}"
    if snapshot < held.snapshot:
        yield f"the snapshot ends at {snapshot} and not at {held.snapshot}"
    for entry in journal.entries:
        if entry.index > snapshot and held.log.get(str(entry.index)) != fingerprint(entry):
            yield f"entry {entry.index} is another"


def main() -> None:
    """``journal_workload <directory> <marks> <seed> <steps> [careless]``."""
    directory, marks, seed, steps, *careless = sys.argv[1:]
    Workload(Path(directory), Path(marks), int(seed), Careless() if careless else Disk()).run(int(steps))


if __name__ == "__main__":
    main()
