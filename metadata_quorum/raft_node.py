"""Drives a `RaftMachine` on the event loop: messages, time, disk, snapshots.

The rule that makes it safe: **while the journal is being synced the machine stands still.** Messages that arrive wait,
those that the last step produced are held back (but for appends, whose answers cannot be taken in before the sync is
done), and nothing is applied. So votes, acknowledgements and answers never speak of something that a crash could undo,
and whatever queues up meanwhile shares the next sync: group commit, without a line of code for it.

A full disk means that the machine stands still until there is space again: it neither votes nor acknowledges nor leads,
and the others elect somebody else. Any other failure of the disk is final: the process must end.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from lograft.contract.disk import Disk, is_no_space
from lograft.contract.errors import LogError, StorageCorrupted, StorageFailed, UnsupportedVersion
from lograft.metadata_quorum.append_sender import AppendSender
from lograft.metadata_quorum.core.apply import apply_entry, skip_entry, unsupported
from lograft.metadata_quorum.core.model import ClusterState, Member
from lograft.metadata_quorum.core.overlap import Entry
from lograft.metadata_quorum.core.snapshot import StateCopy, capture, encode_pieces
from lograft.metadata_quorum.journal import FIRST_ENTRY, NO_OP, Journal
from lograft.metadata_quorum.raft_machine import Answer, RaftMachine, RaftTiming, SafetyViolated
from lograft.metadata_quorum.snapshot_file import INCOMING, SNAPSHOT, load_snapshot, write_snapshot
from lograft.metadata_quorum.sync_thread import SyncThread
from lograft.v1 import metadata_pb2, quorum_pb2

_logger = logging.getLogger(__name__)
_FULL_DISK_RETRY_S = 0.25
_TICK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """When a snapshot is taken, and how much of the log stays behind it."""

    # A snapshot is taken when the log has grown by either of these since the last one. More means a longer restart.
    entries: int = 50_000
    bytes: int = 32 << 20
    # Entries kept although the snapshot stands for them, so that a node that was away for a moment, or a watcher, is
    # sent those instead of everything.
    history_entries: int = 10_000

    def __post_init__(self) -> None:
        if self.entries < 1 or self.bytes < 1 or self.history_entries < 0:
            raise ValueError("snapshots need positive limits")


class RaftNode:
    """One quorum node's log and state. All methods are for the event loop's thread."""

    def __init__(
        self,
        me: Member,
        first_members: tuple[Member, ...],
        directory: Path,
        *,
        disk: Disk,
        send: Callable[[str, quorum_pb2.ExchangeRequest], None],
        timing: RaftTiming | None = None,
        limits: SnapshotLimits | None = None,
    ) -> None:
        """Open the node's files; raises `StorageCorrupted` if any of them is damaged."""
        self._directory = directory
        self._first_members = first_members
        self._disk = disk
        self._send = send
        self._limits = limits or SnapshotLimits()
        snapshot = directory / SNAPSHOT
        self.state = load_snapshot(snapshot) if snapshot.exists() else ClusterState(version=FIRST_ENTRY.index)
        self.snapshot_version = self.state.version if snapshot.exists() else 0
        self.journal = Journal(
            directory,
            disk,
            keep_from=self.state.version - self._limits.history_entries,
            placeholder=Entry(NO_OP, self.state.version, self.state.term),
        )
        self.machine = RaftMachine(
            me,
            journal=self.journal,
            applied=self.state.version,
            members=self.state.members or first_members,
            snapshot_path=snapshot,
            apply=self._apply,
            timing=timing,
        )
        self.machine.on_snapshot_chunk = self._take_chunk
        self.problem = ""
        self.failure: asyncio.Future[LogError] = asyncio.get_running_loop().create_future()
        # Called after every step: the controller looks whether it leads, the watchers whether there is news.
        self.on_step: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._thread = SyncThread(self._loop)
        self._appends = AppendSender(self.machine, send, self._loop)
        self._inbox: deque[tuple[str, quorum_pb2.ExchangeRequest]] = deque()
        self._frozen = False
        self._closed = False
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._tick_at = 0.0
        self._incoming: _IncomingSnapshot | None = None
        # One that has arrived; it is installed before the next step, when the journal is clean.
        self._complete: _IncomingSnapshot | None = None
        self._snapshot_task: asyncio.Task[None] | None = None
        if self.journal.cut_bytes:
            _logger.warning("cut %d bytes of an interrupted write off the journal", self.journal.cut_bytes)

    # From outside

    def start(self) -> None:
        """Begin to tick."""
        self._keep_time()
        self._step()

    def _keep_time(self) -> None:
        if not self._closed:
            self._timer = self._loop.call_later(_TICK_S, self._keep_time)
            self.wake()

    def receive(self, sender: str, message: quorum_pb2.ExchangeRequest) -> None:
        """A message from another node."""
        self._inbox.append((sender, message))
        self.wake()

    def propose(self, tag: bytes, payload: bytes, answer: Answer) -> None:
        """Put a command into the log; see `RaftMachine.propose`."""
        self.machine.propose(tag, payload, answer)
        self.wake()

    def wake(self) -> None:
        """Step soon."""
        if not self._scheduled and not self._frozen and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._step)

    @property
    def standing_still(self) -> bool:
        """Whether the disk refuses to go on, so that the node is as good as gone."""
        return bool(self.problem)

    async def close(self) -> None:
        """Stop, with everything on disk that was being written."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._snapshot_task is not None:
            self._snapshot_task.cancel()
            await asyncio.gather(self._snapshot_task, return_exceptions=True)
        await asyncio.to_thread(self._thread.close)
        self._drop_incoming()
        self.machine.close()
        self.journal.close()

    # Steps

    def _step(self) -> None:
        self._scheduled = False
        if self._frozen or self._closed or self.failure.done():
            return
        if self._complete is not None:
            self._begin_install(self._complete)
            return
        try:
            while self._inbox and self._complete is None:
                self.machine.receive(*self._inbox.popleft())
            if self.machine.has_work or self._loop.time() >= self._tick_at:
                self._tick_at = self._loop.time() + _TICK_S
                self.machine.tick()
        except LogError as error:
            self._fail(error)
            return
        except SafetyViolated as error:
            self._fail(StorageCorrupted(str(self._directory), 0, f"Raft is not safe any more: {error}"))
            return
        for look in self.on_step:
            look()
        self._write_then_send()
        self._snapshot_if_wanted()
        if self._install_waits:
            self.wake()

    @property
    def _install_waits(self) -> bool:
        return self._complete is not None

    def _write_then_send(self) -> None:
        messages, self.machine.outbox = self.machine.outbox, []
        dirty = self.journal.dirty
        held = []
        for receiver, message in messages:
            if message.HasField("append_entries"):
                self._appends.send(receiver, message)
            elif dirty:
                held.append((receiver, message))
            else:
                self._send(receiver, message)
        if not dirty:
            return
        block = self.journal.take_block()
        self._frozen = True
        self._thread.submit(lambda: self.journal.write_block(block), lambda _, error: self._written(block, held, error))

    def _written(
        self, block: bytes, held: list[tuple[str, quorum_pb2.ExchangeRequest]], error: BaseException | None
    ) -> None:
        if self._closed:
            return
        if error is not None:
            if isinstance(error, OSError) and is_no_space(error):
                self._wait_for_space(lambda: self.journal.write_block(block), lambda e: self._written(block, held, e))
            else:
                self._fail(StorageFailed(str(self.journal.path), str(error)))
            return
        for receiver, message in held:
            self._send(receiver, message)
        self._thaw()

    def _wait_for_space(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        if not self.problem:
            _logger.error("no space left for %s: this node does not take part until there is", self.journal.path)
        self.problem = f"disk full: no space left for {self.journal.path}; free some, and the node goes on by itself"
        self._loop.call_later(_FULL_DISK_RETRY_S, lambda: self._thread.submit(job, lambda _, error: done(error)))
        for look in self.on_step:
            look()

    def _thaw(self) -> None:
        if self.problem:
            _logger.warning("there is space again for %s", self.journal.path)
            self.problem = ""
        self._frozen = False
        self._step()

    def _fail(self, error: LogError) -> None:
        self.problem = str(error)
        self._frozen = True
        _logger.critical("this quorum node stops: %s", error)
        if not self.failure.done():
            self.failure.set_result(error)

    # Applying

    def _apply(self, entry: Entry) -> object:
        if entry.command[:1] == NO_OP:
            skip_entry(self.state, version=entry.index, term=entry.term)
            return None
        try:
            changes = metadata_pb2.MetadataEntry.FromString(entry.command[1:])
        except DecodeError:
            raise StorageCorrupted(str(self.journal.path), 0, f"entry {entry.index} cannot be read") from None
        too_new = unsupported(changes)
        if too_new is not None:
            raise too_new
        return apply_entry(self.state, changes, version=entry.index, term=entry.term)

    # Snapshots of our own

    def _snapshot_if_wanted(self) -> None:
        grown = self.state.version - max(self.snapshot_version, FIRST_ENTRY.index)
        wanted = grown >= self._limits.entries or (self.journal.size >= self._limits.bytes and grown > 1)
        if wanted and self._snapshot_task is None and self._complete is None and not self._frozen:
            # One at a time: ours must never replace a newer one of the leader. It sends its own again.
            self._drop_incoming()
            self._snapshot_task = self._loop.create_task(self._snapshot(capture(self.state)))

    async def _snapshot(self, copy: StateCopy) -> None:
        version, members = copy.version, self.state.members or self._first_members
        trimming = False
        try:
            # In a thread of its own: syncs of the journal go on meanwhile.
            await asyncio.to_thread(write_snapshot, self._disk, self._directory, encode_pieces(copy))
            while self._frozen:  # noqa: ASYNC110 - a sync takes less than a millisecond
                await asyncio.sleep(0.001)
            if version <= self.snapshot_version:
                return  # a newer one was installed meanwhile
            self.snapshot_version = version
            self.machine.snapshot_taken(version, members)
            self._frozen = trimming = True
            keep_from = self._history_begins(version)
            await self._thread.run(lambda: self.journal.trim(keep_from))
            self._thaw()
        except OSError as error:
            if is_no_space(error):
                _logger.warning("no space left for a snapshot: the journal keeps growing")
                if trimming:
                    self._thaw()
                await asyncio.sleep(_FULL_DISK_RETRY_S * 4)
            else:
                self._fail(StorageFailed(str(self._directory / SNAPSHOT), str(error)))
        finally:
            self._snapshot_task = None

    def _history_begins(self, version: int) -> int:
        """The first entry to keep behind a snapshot of ``version``: not so much that the next one is wanted at once."""
        first = max(version - self._limits.history_entries, self.journal.first_index)
        left = self._limits.bytes // 2
        for entry in reversed(self.journal.from_index(first)):
            left -= len(entry.command)
            if left < 0 and entry.index < version:
                return entry.index
        return first

    # Snapshots of the leader

    def _take_chunk(self, sender: str, chunk: quorum_pb2.SnapshotChunk) -> None:
        try:
            if chunk.first:
                self._drop_incoming()
                if self._snapshot_task is None:
                    self._incoming = _IncomingSnapshot(sender, self._directory / INCOMING)
            incoming = self._incoming
            if incoming is None or incoming.sender != sender:
                return
            incoming.file.write(chunk.data)
            if chunk.last:
                incoming.file.close()
                self._incoming, self._complete = None, incoming
        except OSError as error:
            _logger.warning("a snapshot from %s could not be stored: %s", sender, error)
            self._drop_incoming()

    def _begin_install(self, incoming: "_IncomingSnapshot") -> None:
        self._complete = None
        self._frozen = True
        self._thread.submit(
            lambda: self._read_incoming(incoming.path),
            lambda state, error: self._install(incoming.sender, state, error),
        )

    def _read_incoming(self, path: Path) -> ClusterState | None:
        """Check the whole snapshot, and store it if it is ahead of us; in the disk thread, while the machine rests."""
        state = load_snapshot(path)
        if state.version <= self.state.version or self.journal.holds(state.version, state.term):
            path.unlink()
            return state
        write_snapshot(self._disk, self._directory, encode_pieces(capture(state)))
        path.unlink()
        self.journal.restart_at(Entry(NO_OP, state.version, state.term))
        return state

    def _install(self, sender: str, state: ClusterState | None, error: BaseException | None) -> None:
        if error is not None or state is None:
            # Nothing is confirmed: the leader sends it again.
            _logger.warning("a snapshot from %s was not installed: %s", sender, error)
            if isinstance(error, OSError) and not is_no_space(error):
                self._fail(StorageFailed(str(self._directory / SNAPSHOT), str(error)))
                return
            if isinstance(error, UnsupportedVersion):
                self._fail(error)
                return
        elif self.journal.first_index == state.version and self.state.version < state.version:
            self.state = state
            self.snapshot_version = state.version
            self.machine.snapshot_installed(sender, self.journal.entries[0], state.members or self._first_members)
        elif self.journal.holds(state.version, state.term):
            self.machine.confirm_snapshot(sender, state.version)
        self._thaw()

    def _drop_incoming(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            with suppress(OSError):  # what could not be written before is not missed now
                incoming.file.close()


class _IncomingSnapshot:
    """A snapshot on its way to us."""

    def __init__(self, sender: str, path: Path) -> None:
        self.sender = sender
        self.path = path
        self.file = path.open("wb")
