"""The checks of the workload itself, on histories made by hand: a check that finds nothing proves nothing."""

from types import SimpleNamespace

import pytest

from lograft.chaos.quorum_workload import FAILED, OK, UNKNOWN, QuorumWorkload, _Record
from lograft.metadata_quorum.core.model import Acl, ClusterState, QuotaKey


@pytest.fixture
def load() -> QuorumWorkload:
    return QuorumWorkload(SimpleNamespace(nodes={}))


def state(*, quotas: tuple[str, ...] = (), acls: tuple[str, ...] = ()) -> ClusterState:
    return ClusterState(
        quotas={QuotaKey(name, ""): {} for name in quotas},
        acls={Acl("user:a", 1, name, 1, 2, False, ""): None for name in acls},
    )


@pytest.mark.parametrize(
    ("outcome", "there", "fine"),
    [
        (OK, True, True),
        (OK, False, False),
        (FAILED, True, False),
        (FAILED, False, True),
        (UNKNOWN, True, True),
        (UNKNOWN, False, True),
    ],
)
def test_changes_are_held_against_the_state(load, outcome, there, fine):
    load.quotas = [_Record("a", outcome, version=2, after=1)]
    assert (load.violations(state(quotas=("a",) if there else ())) == []) is fine


@pytest.mark.parametrize(
    ("created", "deleted", "there", "fine"),
    [
        (OK, OK, False, True),
        (OK, OK, True, False),
        (OK, FAILED, True, True),
        (OK, FAILED, False, False),
        (OK, UNKNOWN, True, True),
        (OK, UNKNOWN, False, True),
        (FAILED, None, True, False),
        (UNKNOWN, None, True, True),
    ],
)
def test_deletions_are_held_against_the_state(load, created, deleted, there, fine):
    second = None if deleted is None else _Record("a", deleted, version=3, after=2)
    load.acls = [(_Record("a", created, version=2, after=1), second)]
    assert (load.violations(state(acls=("a",) if there else ())) == []) is fine


def test_answers_of_the_past_and_problems_are_found(load):
    load.quotas = [_Record("a", OK, version=5, after=5)]
    load.problems = ["a watcher went back"]
    assert len(load.violations(state(quotas=("a",)))) == 2
