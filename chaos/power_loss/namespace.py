"""Directory entries: which names are surely on disk, and which only may be.

Pure. Each directory keeps its operations in order until it is synced; after a power loss some prefix of them
has happened. Three couplings keep the picture sane, as a journal would:

- a rename between two directories is one operation in both: it happens in both or in neither, so a file is
  never lost and never there twice; syncing either directory settles it;
- removing a directory needs everything that was done inside it before: otherwise a file moved out would be
  lost;
- a change below a directory that itself did not survive is out of reach, and so not part of an image.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from lograft.chaos.power_loss.file_content import FileContent


class UntracedFile(Exception):
    """The trace speaks of a file that neither it nor the initial image has introduced."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is older than the trace: give DiskModel the image that the traced run started from"


@dataclass(slots=True, eq=False)
class Folder:
    """One directory inode. The process sees ``live``; the disk ``durable`` plus a prefix of ``pending``."""

    live: "dict[str, Node]" = field(default_factory=dict)
    durable: "dict[str, Node]" = field(default_factory=dict)
    pending: "list[Operation]" = field(default_factory=list)


Node = FileContent | Folder
Change = tuple[Folder, str, Node | None]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An atomic change of entries; ``emptied`` are the directories whose removal it contains."""

    sequence: int
    changes: tuple[Change, ...]
    emptied: tuple[Folder, ...] = ()

    def folders(self) -> Iterator[Folder]:
        """The directories that hold a part of it."""
        return (folder for folder, _, _ in self.changes)


class Namespace:
    """The tree below the root. Between calls every folder with pending operations is in ``_dirty``."""

    def __init__(self) -> None:
        self.root = Folder()
        # A dict for its order: the same events and the same seed must give the same image.
        self._dirty: dict[Folder, None] = {}

    def find(self, path: str) -> Node | None:
        """What the traced process sees at ``path``."""
        node: Node | None = self.root
        for name in path.split("/") if path else ():
            node = node.live.get(name) if isinstance(node, Folder) else None
        return node

    def existing(self, path: str) -> Node:
        """As ``find``, for a path that an event says is there."""
        node = self.find(path)
        if node is None:
            raise UntracedFile(path)
        return node

    def settle_new(self, path: str, node: Node) -> None:
        """Put a node there as if it had always been: the state before the trace."""
        folder, name = self._entry(path)
        folder.live[name] = folder.durable[name] = node

    def add(self, sequence: int, path: str, node: Node) -> None:
        """A new name."""
        self._do(sequence, [(*self._entry(path), node)])

    def remove(self, sequence: int, path: str) -> None:
        """A name goes away."""
        self._do(sequence, [(*self._entry(path), None)], self.existing(path))

    def rename(self, sequence: int, old: str, new: str, *, exchange: bool) -> None:
        """A name moves, over another one if there is one."""
        moved, replaced = self.existing(old), self.find(new)
        self._do(
            sequence,
            [(*self._entry(old), replaced if exchange else None), (*self._entry(new), moved)],
            None if exchange else replaced,
        )

    def _entry(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        folder = self.existing(parent)
        if not isinstance(folder, Folder):
            raise UntracedFile(parent)
        return folder, name

    def _do(self, sequence: int, changes: list[Change], gone: Node | None = None) -> None:
        emptied = (gone,) if isinstance(gone, Folder) else ()
        operation = Operation(sequence, tuple(changes), emptied)
        for folder, name, node in changes:
            _set(folder.live, name, node)
        for folder in dict.fromkeys(operation.folders()):
            folder.pending.append(operation)
            self._dirty[folder] = None

    def settle(self, folder: Folder, before: int) -> None:
        """A sync of ``folder`` that began at ``before`` succeeded."""
        self._settle_through({folder: before - 1})

    def settle_all(self, before: int) -> None:
        """A sync of the whole filesystem succeeded."""
        self._settle_through(dict.fromkeys(self._dirty, before - 1))

    def _settle_through(self, last: dict[Folder, int]) -> None:
        waiting = list(last)
        while waiting:
            folder = waiting.pop()
            for operation in folder.pending:
                if operation.sequence > last[folder]:
                    break
                for other in (*operation.folders(), *operation.emptied):
                    if last.get(other, -1) < operation.sequence:
                        last[other] = operation.sequence
                        waiting.append(other)
        for folder, sequence in last.items():
            _apply_through(folder, folder.durable, sequence)
            folder.pending = [o for o in folder.pending if o.sequence > sequence]
            if not folder.pending:
                self._dirty.pop(folder, None)

    def durable_tree(self) -> Iterator[tuple[str, Node]]:
        """The paths that are there if nothing unsynced survives."""
        return _walk(self.root, {})

    def surviving_tree(self, random: Random) -> Iterator[tuple[str, Node]]:
        """The paths that may be there: a prefix of the pending operations of each directory."""
        last: dict[Folder, int] = {}
        for folder in self._dirty:
            kept = random.randint(0, len(folder.pending))
            last[folder] = folder.pending[kept - 1].sequence if kept else -1
        _withdraw_halves(last)
        entries: dict[Folder, dict[str, Node]] = {}
        for folder, sequence in last.items():
            entries[folder] = dict(folder.durable)
            _apply_through(folder, entries[folder], sequence)
        return _walk(self.root, entries)


def _withdraw_halves(last: dict[Folder, int]) -> None:
    """Shorten prefixes until no operation has happened in one of its directories only."""
    changed = True
    while changed:
        changed = False
        for folder, sequence in last.items():
            for operation in folder.pending:
                if operation.sequence > sequence:
                    break
                if not _is_whole(operation, last):
                    last[folder] = operation.sequence - 1
                    changed = True
                    break


def _is_whole(operation: Operation, last: dict[Folder, int]) -> bool:
    if any(last[folder] < operation.sequence for folder in operation.folders()):
        return False
    return all(
        earlier.sequence <= last[emptied]
        for emptied in operation.emptied
        for earlier in emptied.pending
        if earlier.sequence < operation.sequence
    )


def _apply_through(folder: Folder, entries: dict[str, Node], sequence: int) -> None:
    for operation in folder.pending:
        if operation.sequence > sequence:
            break
        for changed, name, node in operation.changes:
            if changed is folder:
                _set(entries, name, node)


def _set(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _walk(root: Folder, entries: dict[Folder, dict[str, Node]]) -> Iterator[tuple[str, Node]]:
    waiting: list[tuple[str, Folder]] = [("", root)]
    while waiting:
        prefix, folder = waiting.pop()
        children: Iterable[tuple[str, Node]] = entries.get(folder, folder.durable).items()
        for name, node in children:
            yield prefix + name, node
            if isinstance(node, Folder):
                waiting.append((f"{prefix}{name}/", node))
