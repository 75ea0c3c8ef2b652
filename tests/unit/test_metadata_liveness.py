"""Sessions of brokers under a clock that the test moves."""

import pytest

from lograft.metadata_quorum.core import brokers
from lograft.metadata_quorum.core.liveness import CHECK_INTERVAL_MS, MAX_GAP_MS, Sessions, unfence_candidates
from lograft.v1 import cluster_pb2

EPOCH = 5


class Hours:
    """Sessions, and a clock that checks them as often as it should when it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.sessions = Sessions()
        self.sessions.reset([], self.now_ms)
        self.ended: list[tuple[int, str]] = []

    def advance(self, by_ms: int) -> list[tuple[int, str]]:
        end = self.now_ms + by_ms
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + CHECK_INTERVAL_MS)
            self.ended = self.sessions.expired(self.now_ms)
        return self.ended

    def pause(self, by_ms: int) -> None:
        self.now_ms += by_ms

    def check(self) -> list[tuple[int, str]]:
        return self.sessions.expired(self.now_ms)

    def open(self, broker_id: int = 1, epoch: int = EPOCH) -> bool:
        return self.sessions.opened(broker_id, epoch, self.now_ms)

    def beat(self, broker_id: int = 1, epoch: int = EPOCH, version: int = 9, ready: bool = True) -> bool:
        return self.sessions.heartbeat(broker_id, epoch, version, ready, self.now_ms)

    def close(self, broker_id: int = 1, epoch: int = EPOCH) -> None:
        self.sessions.disconnected(broker_id, epoch, self.now_ms)

    def alive(self, broker_id: int = 1) -> bool:
        return self.sessions.alive(broker_id, self.now_ms)


@pytest.fixture
def hours() -> Hours:
    return Hours()


def test_session_lives_as_long_as_it_is_heard(hours) -> None:
    hours.open()
    for _ in range(10):
        assert hours.advance(1_900) == []
        assert hours.beat()
    assert hours.alive()


def test_session_when_silent_past_the_timeout_then_ends(hours) -> None:
    hours.open()
    assert hours.advance(1_999) == []
    assert hours.alive()
    assert hours.advance(1) == [(1, "session timed out")]
    assert not hours.alive()


def test_session_when_stream_breaks_then_ends_after_the_grace(hours) -> None:
    hours.open()
    hours.close()
    assert hours.advance(299) == []
    assert hours.alive()
    assert hours.advance(1) == [(1, "connection lost")]
    assert not hours.alive()


def test_session_when_stream_is_opened_again_within_the_grace_then_lives(hours) -> None:
    hours.open()
    hours.close()
    hours.advance(250)
    hours.open()
    assert hours.advance(1_900) == []


def test_session_when_new_stream_comes_before_the_end_of_the_old_then_lives(hours) -> None:
    hours.open()
    hours.open()
    hours.close()
    assert hours.advance(1_000) == []
    hours.close()
    assert hours.advance(300) == [(1, "connection lost")]


def test_session_that_has_ended_is_told_until_the_broker_is_heard_again(hours) -> None:
    hours.open()
    hours.advance(2_000)
    assert hours.advance(500) == [(1, "session timed out")]
    assert hours.beat()
    assert hours.alive()
    assert hours.advance(100) == []


def test_session_when_forgotten_then_never_told(hours) -> None:
    hours.open()
    hours.sessions.forget(1)
    assert hours.advance(5_000) == []
    assert not hours.alive()


def test_heartbeat_without_a_stream_or_of_another_epoch_belongs_to_no_session(hours) -> None:
    assert not hours.beat()
    hours.open()
    assert not hours.beat(epoch=EPOCH - 1)
    assert not hours.beat(epoch=EPOCH + 1)


def test_stream_of_an_older_incarnation_is_refused_and_its_end_does_not_count(hours) -> None:
    hours.open(epoch=EPOCH)
    assert not hours.open(epoch=EPOCH - 1)
    hours.open(epoch=EPOCH + 1)
    hours.close(epoch=EPOCH)
    assert hours.advance(1_000) == []


def test_new_incarnation_begins_with_nothing(hours, trio) -> None:
    hours.open(1, 1)
    hours.beat(1, 1)
    hours.open(1, 2)
    assert hours.sessions.caught_up_to(1, 1, hours.now_ms) is None
    assert hours.sessions.caught_up_to(1, 2, hours.now_ms) is None  # not ready yet


def test_new_controller_gives_everybody_a_fresh_session(hours) -> None:
    hours.open(1)
    hours.advance(1_500)
    hours.sessions.reset([1, 2], hours.now_ms)
    assert hours.alive(1)
    assert hours.alive(2)
    assert hours.sessions.alive_brokers(hours.now_ms) == [1, 2]
    hours.open(2)
    assert hours.advance(1_999) == []
    hours.beat(2)
    assert hours.advance(1) == [(1, "session timed out")]


def test_pause_of_the_controller_fences_nobody(hours) -> None:
    hours.open(1)
    hours.open(2)
    hours.close(2)
    hours.advance(200)
    hours.pause(60_000)
    assert hours.alive(1)
    assert hours.alive(2)
    assert hours.check() == []
    assert hours.advance(99) == []
    assert hours.advance(1) == [(2, "connection lost")]
    assert dict(hours.advance(1_700)) == {1: "session timed out", 2: "connection lost"}


def test_pause_when_heartbeats_were_read_before_the_check_then_no_deadline_lies_beyond_a_timeout(hours) -> None:
    hours.open()
    hours.pause(60_000)
    hours.beat()
    assert hours.check() == []
    assert hours.advance(1_999) == []
    assert hours.advance(1) == [(1, "session timed out")]


def test_gap_within_the_limit_is_no_pause(hours) -> None:
    hours.open()
    hours.advance(1_500)
    hours.pause(MAX_GAP_MS)
    assert hours.check() == [(1, "session timed out")]


def test_pause_does_not_revive_a_session_that_has_ended(hours) -> None:
    hours.open()
    hours.advance(2_000)
    hours.pause(5_000)
    assert hours.check() == [(1, "session timed out")]
    assert not hours.alive()


def test_next_deadline_is_the_next_check_or_earlier(hours) -> None:
    assert Sessions().next_deadline_ms() is None
    assert hours.sessions.next_deadline_ms() == hours.now_ms + CHECK_INTERVAL_MS
    hours.open()
    hours.advance(1_950)
    assert hours.sessions.next_deadline_ms() == hours.now_ms + 50


def test_configure_moves_the_limits_of_open_sessions(hours) -> None:
    hours.open()
    hours.sessions.configure(session_timeout_ms=10_000, grace_ms=50)
    assert hours.advance(5_000) == []
    hours.close()
    assert hours.advance(50) == [(1, "connection lost")]


# Who may lead again


@pytest.fixture
def fenced(hours, cluster):
    """Broker 1 registered, fenced, with an open stream."""
    epoch = cluster.register(1)
    hours.open(1, epoch)
    return lambda: unfence_candidates(cluster.state, hours.sessions, hours.now_ms)


def test_unfence_when_ready_and_caught_up_with_its_registration(hours, cluster, fenced) -> None:
    registered = cluster.state.brokers[1].registered_version
    assert fenced() == []
    hours.beat(1, cluster.epoch(1), registered - 1)
    assert fenced() == []
    hours.beat(1, cluster.epoch(1), registered, ready=False)
    assert fenced() == []
    hours.beat(1, cluster.epoch(1), registered)
    assert fenced() == [1]
    cluster.unfence(1)
    assert fenced() == []


def test_unfence_when_not_connected_or_silent_then_not(hours, cluster, fenced) -> None:
    hours.beat(1, cluster.epoch(1))
    hours.close(1, cluster.epoch(1))
    assert fenced() == []
    hours.open(1, cluster.epoch(1))
    assert fenced() == [1]
    hours.advance(2_000)
    assert fenced() == []


def test_unfence_when_session_is_of_the_former_incarnation_then_not(hours, cluster, fenced) -> None:
    hours.beat(1, cluster.epoch(1))
    cluster.register(1)
    assert fenced() == []


def test_unfence_when_the_incarnation_has_stopped_then_never(hours, cluster, fenced) -> None:
    cluster.unfence(1)
    hours.beat(1, cluster.epoch(1))
    op = cluster_pb2.StopBrokerOperation(broker_id=1, broker_epoch=cluster.epoch(1))
    cluster.commit(brokers.stop(cluster.state, op))
    assert fenced() == []


def test_unfence_when_a_broker_that_slept_is_heard_again(hours, cluster, fenced) -> None:
    cluster.unfence(1)
    hours.beat(1, cluster.epoch(1))
    hours.advance(2_000)
    cluster.fence(1)
    assert fenced() == []
    hours.beat(1, cluster.epoch(1))
    assert fenced() == [1]
