"""What may be on disk after a power loss, from the events of a trace.

Pure: no I/O, no clock, and no randomness but the ``Random`` it is handed, so that an event list, a crash
point and a seed always give the same image. The rules are pessimistic (POSIX, not the kindness of ext4);
README.md lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal, assert_never

from lograft.chaos.power_loss.file_content import FileContent
from lograft.chaos.power_loss.namespace import Folder, Namespace, Node, UntracedFile
from lograft.chaos.power_loss.trace import (
    DirectoryMade,
    DirectoryRemoved,
    Linked,
    Marked,
    Opened,
    Renamed,
    Resized,
    SyncBegan,
    SyncEnded,
    SyncFailed,
    SyncScope,
    TraceEvent,
    Unlinked,
    Wrote,
)

ImageMode = Literal["torn", "dropped"]


@dataclass(frozen=True, slots=True)
class Image:
    """A folder as values: files by relative path, and all directories below (but not) the root."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()


class DiskModel:
    """Replays a trace event by event; ``image`` may be asked for after any of them.

    Inode numbers are reused by real filesystems as soon as a file is gone, so the table from number to node
    is only about now, and everything that lasts refers to nodes.
    """

    def __init__(self, initial: Image | None = None) -> None:
        self.marks: list[bytes] = []
        self._sequence = 0
        self._names = Namespace()
        self._inodes: dict[int, Node] = {}
        self._dirty: dict[FileContent, None] = {}
        # What each running sync covers (None: the whole filesystem), and the sequence number of its begin.
        self._syncs: dict[int, tuple[Node | None, int]] = {}
        if initial is not None:
            for path in sorted(initial.directories):
                self._names.settle_new(path, Folder())
            for path, content in initial.files.items():
                self._names.settle_new(path, FileContent(content))

    def apply(self, event: TraceEvent) -> None:
        """Advance by one event."""
        self._sequence += 1
        now = self._sequence
        match event:
            case Opened():
                self._open(now, event)
            case Wrote() | Resized():
                content = self._content(event.inode)
                content.change(now, event)
                self._dirty[content] = None
            case Renamed():
                self._names.rename(now, event.old, event.new, exchange=event.exchange)
            case Unlinked() | DirectoryRemoved():
                self._names.remove(now, event.path)
            case Linked():
                # The path first: a file linked by name may never have been opened. O_TMPFILE has only its
                # inode.
                self._names.add(now, event.path, self._names.find(event.source) or self._node(event.inode))
            case DirectoryMade():
                folder = self._inodes[event.inode] = Folder()
                self._names.add(now, event.path, folder)
            case SyncBegan():
                whole = event.scope is SyncScope.FILESYSTEM
                self._syncs[event.sync_id] = (None if whole else self._node(event.inode), now)
            case SyncEnded():
                self._settle(*self._syncs.pop(event.sync_id))
            case SyncFailed():
                self._lose(*self._syncs.pop(event.sync_id))
            case Marked():
                self.marks.append(event.payload)
            case _:
                assert_never(event)

    def image(self, random: Random, *, mode: ImageMode = "torn") -> Image:
        """One possible disk if the power fails now: some of the unsynced at random, with "dropped" none."""
        torn = mode == "torn"
        files: dict[str, bytes] = {}
        directories: set[str] = set()
        # Two names of one file must show the same bytes.
        drawn: dict[FileContent, bytes] = {}
        tree = self._names.surviving_tree(random) if torn else self._names.durable_tree()
        for path, node in tree:
            if isinstance(node, Folder):
                directories.add(path)
            else:
                if node not in drawn:
                    drawn[node] = node.survivor(random) if torn else node.durable()
                files[path] = drawn[node]
        return Image(files, frozenset(directories))

    def _open(self, now: int, event: Opened) -> None:
        if event.created:
            content = self._inodes[event.inode] = FileContent()
            if event.path is not None:
                self._names.add(now, event.path, content)
            return
        node = None if event.path is None else self._names.find(event.path)
        if node is not None:
            self._inodes[event.inode] = node
        elif event.inode not in self._inodes:
            raise UntracedFile(event.path or f"inode {event.inode}")

    def _settle(self, node: Node | None, before: int) -> None:
        if isinstance(node, Folder):
            self._names.settle(node, before)
        elif node is not None:
            node.settle(before)
            self._forget_clean([node])
        else:
            self._names.settle_all(before)
            for content in self._dirty:
                content.settle(before)
            self._forget_clean(list(self._dirty))

    def _lose(self, node: Node | None, before: int) -> None:
        # Only data is lost for good. Entries stay pending: a filesystem that fails to write its directories
        # stops (ext4 and XFS go read-only), so there is no later success that could lie about them.
        contents = list(self._dirty) if node is None else [node] if isinstance(node, FileContent) else []
        for content in contents:
            content.lose(before)
        self._forget_clean(contents)

    def _forget_clean(self, contents: list[FileContent]) -> None:
        for content in contents:
            if not content.dirty:
                self._dirty.pop(content, None)

    def _node(self, inode: int) -> Node:
        try:
            return self._inodes[inode]
        except KeyError:
            raise UntracedFile(f"inode {inode}") from None

    def _content(self, inode: int) -> FileContent:
        node = self._node(inode)
        if isinstance(node, Folder):
            raise UntracedFile(f"file with inode {inode}")
        return node
