"""When appends go out: at once where a commit waits for them, a moment later and together where none does.

Python pays for gRPC by the message. A commit needs a majority, so the leader sends entries at once to just as many
followers as make one with itself, those that are furthest. The others, and followers that only have to learn the
commit index, get theirs within `DELAY_S`, merged with what comes meanwhile: in a quorum of three that is a third of all
work. A follower that falls behind is overtaken by another, which then is among the furthest, so nothing waits longer
than the delay.
"""

import asyncio
from collections.abc import Callable

from lograft.metadata_quorum.raft_machine import RaftMachine, raft_id
from lograft.v1 import quorum_pb2

DELAY_S = 0.003
# Large ones gain nothing from company.
_MERGE_BYTES = 64 << 10


class AppendSender:
    """The appends of one node that are to go out."""

    def __init__(
        self,
        machine: RaftMachine,
        send: Callable[[str, quorum_pb2.ExchangeRequest], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._machine = machine
        self._send = send
        self._loop = loop
        self._waiting: dict[str, quorum_pb2.ExchangeRequest] = {}

    def send(self, receiver: str, message: quorum_pb2.ExchangeRequest) -> None:
        """Send, now or soon. Messages to one receiver keep their order."""
        message = self._merged(receiver, message)
        append = message.append_entries
        if append.entries and (receiver in self._awaited() or append.ByteSize() >= _MERGE_BYTES):
            self._send(receiver, message)
            return
        if not self._waiting:
            self._loop.call_later(DELAY_S, self.flush)
        self._waiting[receiver] = message

    def flush(self) -> None:
        """Send everything that waits."""
        waiting, self._waiting = self._waiting, {}
        for receiver, message in waiting.items():
            self._send(receiver, message)

    def _merged(self, receiver: str, message: quorum_pb2.ExchangeRequest) -> quorum_pb2.ExchangeRequest:
        """The message with what waits for the same receiver in front of it, if the two are one run of entries."""
        before = self._waiting.pop(receiver, None)
        if before is None or not before.append_entries.entries:
            return message  # a mere sign of life: the later one says more
        first, second = before.append_entries, message.append_entries
        if before.term != message.term or second.previous_index != first.previous_index + len(first.entries):
            self._send(receiver, before)
            return message
        first.entries.extend(second.entries)
        first.commit_index = max(first.commit_index, second.commit_index)
        return before

    def _awaited(self) -> set[str]:
        """The followers that the next commit waits for."""
        machine = self._machine
        others = [raft_id(member) for member in machine.members if member.directory_id != machine.me.directory_id]
        others.sort(key=machine.match_index, reverse=True)
        return set(others[: len(machine.members) // 2])
