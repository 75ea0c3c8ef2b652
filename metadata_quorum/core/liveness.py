"""Which brokers are alive, from their heartbeats and the state of their streams.

Owned by the controller and lost with it: a new controller gives every broker a fresh session. Times are milliseconds of
a clock that the caller reads and that never goes back; nothing here waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lograft.metadata_quorum.core.brokers import STOPPED
from lograft.metadata_quorum.core.model import ClusterState

SESSION_TIMEOUT_MS = 2_000
RECONNECT_GRACE_MS = 300
# `expired` is to be called at least this often ...
CHECK_INTERVAL_MS = 100
# ... and if it was not for so long, it is the controller that slept: heartbeats may wait in its own queues.
MAX_GAP_MS = 500


@dataclass(slots=True)
class _Session:
    heard_ms: int
    # None until the broker has opened a stream to this controller.
    broker_epoch: int | None = None
    # More than one for a moment, when a broker is back before the end of its former stream was noticed.
    streams: int = 0
    broken_ms: int | None = None
    version: int = 0
    ready: bool = False
    # Why it has ended, empty while it lives. Kept, because a broker that only slept goes on with the stream it has.
    end_reason: str = ""


class Sessions:
    """One session per broker. A session that has ended lives again when its broker is heard again."""

    def __init__(
        self, *, session_timeout_ms: int = SESSION_TIMEOUT_MS, reconnect_grace_ms: int = RECONNECT_GRACE_MS
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.reconnect_grace_ms = reconnect_grace_ms
        self._sessions: dict[int, _Session] = {}
        self._checked_ms: int | None = None

    def configure(self, *, session_timeout_ms: int, grace_ms: int) -> None:
        """Other limits from now on, for sessions that are open too."""
        self.session_timeout_ms = session_timeout_ms
        self.reconnect_grace_ms = grace_ms

    def reset(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """This node has become the controller: every broker has one session timeout to find it."""
        self._sessions = {broker_id: _Session(now_ms) for broker_id in broker_ids}
        self._checked_ms = now_ms

    def opened(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """A heartbeat stream was opened. False if it is one of an incarnation that is over."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch is None or session.broker_epoch < broker_epoch:
            self._sessions[broker_id] = _Session(now_ms, broker_epoch, streams=1)
            return True
        if session.broker_epoch > broker_epoch:
            return False
        session.streams += 1
        session.broken_ms = None
        self._heard(session, now_ms)
        return True

    def heartbeat(self, broker_id: int, broker_epoch: int, version: int, ready: bool, now_ms: int) -> bool:
        """A sign of life. False if it belongs to no session: the broker has to open one."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            return False
        session.version = max(session.version, version)
        session.ready = ready
        self._heard(session, now_ms)
        return True

    def disconnected(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat stream broke or was closed."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch and session.streams:
            session.streams -= 1
            if not session.streams:
                session.broken_ms = now_ms

    def forget(self, broker_id: int) -> None:
        """The broker was retired."""
        self._sessions.pop(broker_id, None)

    def expired(self, now_ms: int) -> list[tuple[int, str]]:
        """Brokers whose session has ended, with the reason for people.

        Told again at every call until the broker is heard again or forgotten: a fence that is refused because something
        else changed the same partition has to be decided once more. Whoever is fenced already can be passed over.
        """
        self._forgive_pause(now_ms)
        for session in self._sessions.values():
            if not session.end_reason and self._deadline_ms(session) <= now_ms:
                silent = session.heard_ms + self.session_timeout_ms <= now_ms
                session.end_reason = "session timed out" if silent else "connection lost"
        return [(broker_id, session.end_reason) for broker_id, session in self._sessions.items() if session.end_reason]

    def alive(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker has a session that has not ended. A broken stream is within its grace; a broker that a new
        controller has not heard yet counts as well."""
        session = self._sessions.get(broker_id)
        if session is None or session.end_reason:
            return False
        # After a pause of this process silence proves nothing.
        return self._paused_for(now_ms) > 0 or now_ms < self._deadline_ms(session)

    def next_deadline_ms(self) -> int | None:
        """When to call `expired` next; None before the first controller."""
        if self._checked_ms is None:
            return None
        deadlines = [self._deadline_ms(session) for session in self._sessions.values() if not session.end_reason]
        return min([self._checked_ms + CHECK_INTERVAL_MS, *deadlines])

    def alive_brokers(self, now_ms: int) -> list[int]:
        """All brokers that are alive."""
        return [broker_id for broker_id in self._sessions if self.alive(broker_id, now_ms)]

    def caught_up_to(self, broker_id: int, broker_epoch: int, now_ms: int) -> int | None:
        """Up to which version a broker has applied the metadata, if it is connected, alive and ready to lead."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch or not (session.streams and session.ready):
            return None
        return session.version if self.alive(broker_id, now_ms) else None

    def _heard(self, session: _Session, now_ms: int) -> None:
        session.heard_ms = now_ms
        session.end_reason = ""

    def _deadline_ms(self, session: _Session) -> int:
        silence = session.heard_ms + self.session_timeout_ms
        return silence if session.broken_ms is None else min(silence, session.broken_ms + self.reconnect_grace_ms)

    def _paused_for(self, now_ms: int) -> int:
        gap = 0 if self._checked_ms is None else now_ms - self._checked_ms
        return gap if gap > MAX_GAP_MS else 0

    def _forgive_pause(self, now_ms: int) -> None:
        """Move every deadline by the time in which this process did not run, or a pause would fence everybody."""
        pause = self._paused_for(now_ms)
        self._checked_ms = now_ms
        if pause:
            for session in self._sessions.values():
                session.heard_ms = min(session.heard_ms + pause, now_ms)
                if session.broken_ms is not None:
                    session.broken_ms = min(session.broken_ms + pause, now_ms)


def unfence_candidates(state: ClusterState, sessions: Sessions, now_ms: int) -> list[int]:
    """Fenced brokers that may lead again: connected in their present incarnation, ready, not behind their registration.

    An incarnation that has said that it stops is none of them, although its last heartbeats may still arrive.
    """
    found = []
    for broker_id, broker in state.brokers.items():
        if broker.fenced and broker.fence_reason != STOPPED:
            version = sessions.caught_up_to(broker_id, broker.broker_epoch, now_ms)
            if version is not None and version >= broker.registered_version:
                found.append(broker_id)
    return found
