"""Who a quorum node is: its name, the random id of its directory, and how a first quorum comes together.

A voter is a name **and** a directory. A node whose files are missing or damaged refuses to start; one whose directory
is empty is somebody new, whatever its name says, and waits to be added. So nobody who has forgotten a vote or an entry
can vote or acknowledge again (row 16 of docs/raft.md).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from lograft.contract.directories import DirectoryLock, create_directory
from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted, WrongDirectory
from lograft.contract.ids import random_id
from lograft.contract.small_files import Kind, read_small_file, write_small_file
from lograft.metadata_quorum.core.model import Member
from lograft.metadata_quorum.journal import JOURNAL, Journal
from lograft.metadata_quorum.snapshot_file import SNAPSHOT
from lograft.v1 import metadata_pb2, quorum_pb2

NODE_META = "node.meta"


class Identity:
    """A node's directory, locked for this process."""

    def __init__(self, directory: Path, name: str, disk: Disk) -> None:
        """Open the directory, or make it. Raises if it is another node's, or if something is missing in it."""
        if not directory.is_dir():
            create_directory(directory, disk)
        self.directory = directory
        self._disk = disk
        self._lock = DirectoryLock(directory)
        try:
            self._meta = self._read(name)
        except BaseException:
            self._lock.release()
            raise

    def _read(self, name: str) -> quorum_pb2.NodeMeta:
        path = self.directory / NODE_META
        meta = read_small_file(path, Kind.NODE_META, quorum_pb2.NodeMeta)
        journal, snapshot = self.directory / JOURNAL, self.directory / SNAPSHOT
        if meta is None:
            if snapshot.exists() or (journal.exists() and not _untouched(self.directory, self._disk)):
                raise StorageCorrupted(str(path), 0, f"the file is missing: {_WAY_BACK}")
            # The journal first: from now on a missing one means damage.
            Journal(self.directory, self._disk).close()
            meta = quorum_pb2.NodeMeta(name=name, directory_id=random_id())
            write_small_file(self._disk, path, Kind.NODE_META, meta)
        elif not journal.exists():
            raise StorageCorrupted(str(journal), 0, f"the file is missing: {_WAY_BACK}")
        if meta.name != name:
            raise WrongDirectory(str(self.directory), "quorum node", meta.name, name)
        return meta

    @property
    def name(self) -> str:
        """The node's name."""
        return self._meta.name

    @property
    def directory_id(self) -> str:
        """Random, chosen when the directory was made."""
        return self._meta.directory_id

    @property
    def first_members(self) -> tuple[Member, ...]:
        """The voters when this node first belonged to a quorum; none if it never did, or was added later."""
        return members_from_proto(self._meta.first_members)

    def remember(self, members: tuple[Member, ...]) -> None:
        """Keep the first voters, before any of them is answered."""
        del self._meta.first_members[:]
        self._meta.first_members.extend(members_to_proto(members))
        write_small_file(self._disk, self.directory / NODE_META, Kind.NODE_META, self._meta)

    def release(self) -> None:
        """Let others in."""
        self._lock.release()


_WAY_BACK = (
    "this node must not vote any more; remove it from the quorum, empty its directory, start it and add it again "
    "(docs/quorum.md)"
)


def _untouched(directory: Path, disk: Disk) -> bool:
    """Whether the journal is as a first start makes it: the process ended before it wrote its name."""
    journal = Journal(directory, disk)
    journal.close()
    return len(journal) == 1 and journal.term == 0


def members_to_proto(members: tuple[Member, ...]) -> list[metadata_pb2.QuorumMember]:
    """The voters as they travel."""
    return [metadata_pb2.QuorumMember(name=m.name, directory_id=m.directory_id, address=m.address) for m in members]


def members_from_proto(members: Iterable[metadata_pb2.QuorumMember]) -> tuple[Member, ...]:
    """The voters as they came."""
    return tuple(Member(m.name, m.directory_id, m.address) for m in members)


def first_quorum(
    me: Member, configured: Mapping[str, str], heard: Mapping[str, quorum_pb2.HelloResponse]
) -> tuple[Member, ...] | str:
    """The voters to begin with, or in words what to wait for.

    A first quorum is formed only when every configured node has answered and none has ever belonged to one. Otherwise
    a node that lost its directory could found a second quorum beside the one it belonged to.
    """
    for name, answer in heard.items():
        known = members_from_proto(answer.members)
        if not known:
            continue
        if any((m.name, m.directory_id) == (me.name, me.directory_id) for m in known):
            return known
        if any(m.name == me.name for m in known):
            return (
                f"{name} knows a node {me.name} with another directory (it was wiped or replaced): remove {me.name} "
                f"from the quorum, then add it again"
            )
        return f"waiting to be added: the quorum of {name} has no node {me.name} (lograft quorum add {me.name})"
    if me.name not in configured:
        return f"waiting to be added (lograft quorum add {me.name})"
    missing = sorted(configured.keys() - heard.keys() - {me.name})
    if missing:
        return f"waiting for {', '.join(missing)}: the first start needs every node of the configuration"
    others = [Member(name, heard[name].directory_id, configured[name]) for name in configured if name != me.name]
    return tuple(sorted([me, *others]))
