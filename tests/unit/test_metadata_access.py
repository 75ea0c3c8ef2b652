"""Users, ACLs and quotas: what is let in, and in which form."""

import pytest

from lograft.contract.errors import InvalidRequest, UnknownConfig, UnknownName
from lograft.metadata_quorum.core import access
from lograft.metadata_quorum.core.model import Credential, QuotaKey
from lograft.v1 import cluster_pb2, metadata_pb2

CREDENTIAL = Credential("scrypt", b"salt", b"hash-of-it", 16_384, 8, 1)


def set_user(cluster, name: str = "alice", password: str = "secret-word", credential=CREDENTIAL):
    return access.set_user(cluster.state, cluster_pb2.SetUserOperation(name=name, password=password), credential)


def rule(**options) -> metadata_pb2.Acl:
    facts = {
        "principal": "user:alice",
        "resource": metadata_pb2.ACL_RESOURCE_TOPIC,
        "resource_name": "orders",
        "pattern": metadata_pb2.ACL_PATTERN_LITERAL,
        "operation": metadata_pb2.ACL_OPERATION_READ,
    }
    return metadata_pb2.Acl(**(facts | options))


def create_acl(cluster, **options):
    return access.create_acl(cluster.state, cluster_pb2.CreateAclOperation(acl=rule(**options)))


def delete_acl(cluster, **options):
    return access.delete_acl(cluster.state, cluster_pb2.DeleteAclOperation(acl=rule(**options)))


def alter(cluster, user: str = "", client_id: str = "", remove=(), **limits: float):
    entity = metadata_pb2.QuotaEntity(user=user, client_id=client_id)
    op = cluster_pb2.AlterQuotaOperation(entity=entity, set=limits, remove=remove)
    return access.alter_quota(cluster.state, op)


def test_set_user_keeps_the_credential_and_never_the_password(cluster) -> None:
    change = set_user(cluster)
    assert b"secret-word" not in change.SerializeToString()
    cluster.commit(change)
    assert cluster.state.users == {"alice": CREDENTIAL}


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a,b", "*", "é", "x" * 256, "a\n"])
def test_set_user_when_name_is_illegal_then_refused(cluster, name) -> None:
    assert isinstance(set_user(cluster, name), InvalidRequest)


@pytest.mark.parametrize("name", ["a", "CN=web,".rstrip(","), "a@b.c", "a-b+c/d", "!", "~"])
def test_set_user_when_name_is_legal_then_taken(cluster, name) -> None:
    cluster.commit(set_user(cluster, name))


def test_set_user_when_password_or_hash_is_missing_then_refused_without_naming_it(cluster) -> None:
    for error in (set_user(cluster, password=""), set_user(cluster, credential=None)):
        assert isinstance(error, InvalidRequest)
        assert "secret" not in str(error)


def test_delete_user(cluster) -> None:
    cluster.commit(set_user(cluster))
    op = cluster_pb2.DeleteUserOperation(name="alice")
    cluster.commit(access.delete_user(cluster.state, op))
    assert isinstance(access.delete_user(cluster.state, op), UnknownName)


def test_redacted_shows_neither_hash_nor_salt() -> None:
    shown = access.redacted("alice", CREDENTIAL)
    assert shown == {"name": "alice", "scheme": "scrypt", "n": 16_384, "r": 8, "p": 1}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"principal": "user:*"},
        {"resource_name": "*"},
        {"pattern": metadata_pb2.ACL_PATTERN_PREFIXED, "resource_name": "."},
        {"resource": metadata_pb2.ACL_RESOURCE_GROUP, "resource_name": "a group: 7"},
        {"resource": metadata_pb2.ACL_RESOURCE_CLUSTER, "resource_name": ""},
        {"deny": True, "host": "10.0.0.1"},
    ],
)
def test_acl_can_be_created_twice_and_deleted_once(cluster, options) -> None:
    cluster.commit(create_acl(cluster, **options))
    cluster.commit(create_acl(cluster, **options))
    assert len(cluster.state.acls) == 1
    cluster.commit(delete_acl(cluster, **options))
    assert isinstance(delete_acl(cluster, **options), UnknownName)


@pytest.mark.parametrize(
    "options",
    [
        {"principal": ""},
        {"principal": "alice"},
        {"principal": "user:"},
        {"principal": "group:x"},
        {"principal": "user:a b"},
        {"resource": 0},
        {"resource": 99},
        {"pattern": 0},
        {"operation": 0},
        {"operation": 99},
        {"resource_name": ""},
        {"resource_name": "a/b"},
        {"resource_name": ".."},
        {"resource_name": "*", "pattern": metadata_pb2.ACL_PATTERN_PREFIXED},
        {"resource": metadata_pb2.ACL_RESOURCE_GROUP, "resource_name": "a\nb"},
        {"resource": metadata_pb2.ACL_RESOURCE_CLUSTER, "resource_name": "x"},
        {"host": "example.org"},
    ],
)
def test_acl_when_it_cannot_be_understood_then_refused(cluster, options) -> None:
    assert isinstance(create_acl(cluster, **options), InvalidRequest)
    assert isinstance(delete_acl(cluster, **options), InvalidRequest)


def test_acl_has_one_form_for_any_host_and_for_an_address(cluster) -> None:
    cluster.commit(create_acl(cluster, host="*"))
    cluster.commit(delete_acl(cluster, host=""))
    cluster.commit(create_acl(cluster, host="::0:1"))
    cluster.commit(delete_acl(cluster, host="::1"))


def test_acl_that_is_not_there_is_named_in_words(cluster) -> None:
    assert str(delete_acl(cluster)) == "there is no ACL allow user:alice read on topic orders"


def test_quota_sets_and_removes(cluster) -> None:
    cluster.commit(alter(cluster, "alice", "app", producer_byte_rate=1e6, request_rate=5))
    cluster.commit(alter(cluster, "alice", "app", remove=["request_rate"]))
    cluster.commit(alter(cluster, request_rate=0.5))
    assert cluster.state.quotas == {
        QuotaKey("alice", "app"): {"producer_byte_rate": 1e6},
        QuotaKey("", ""): {"request_rate": 0.5},
    }


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_quota_when_not_a_positive_number_then_refused(cluster, value) -> None:
    assert isinstance(alter(cluster, request_rate=value), InvalidRequest)


def test_quota_when_key_is_unknown_then_names_the_nearest(cluster) -> None:
    error = alter(cluster, producer_byte_rat=1)
    assert isinstance(error, UnknownConfig)
    assert error.suggestion == "producer_byte_rate"
    assert isinstance(alter(cluster, remove=["x"]), UnknownConfig)


def test_quota_when_entity_or_request_is_wrong_then_refused(cluster) -> None:
    assert isinstance(alter(cluster, "a b", request_rate=1), InvalidRequest)
    assert isinstance(alter(cluster, "", "a\nb", request_rate=1), InvalidRequest)
    assert isinstance(alter(cluster, remove=["request_rate"], request_rate=1), InvalidRequest)
