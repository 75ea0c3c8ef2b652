"""Users, ACLs and quotas: what may be stored, and in which one form.

Each function reads the state and returns the change to commit, or the error to answer with. No password ever reaches a
change: whoever calls has made a salted hash of it.
"""

import re
from difflib import get_close_matches
from ipaddress import ip_address
from math import isfinite

from lograft.contract.errors import InvalidRequest, InvalidTopicName, LogError, UnknownConfig, UnknownName
from lograft.contract.ids import check_topic_name
from lograft.metadata_quorum.core.model import Acl, ClusterState, Credential
from lograft.v1 import cluster_pb2, metadata_pb2

ANY = "*"
PRINCIPAL_PREFIX = "user:"
QUOTA_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "producer_record_rate",
    "consumer_record_rate",
    "request_rate",
)
# Printable ASCII without blanks and without what has a meaning in principals and lists: ':' ',' '*'.
_USER_NAME = re.compile(r"[!-)+\--9;-~]{1,255}")
_MAX_NAME_LENGTH = 255


def set_user(
    state: ClusterState,  # noqa: ARG001 - every decision takes the state
    op: cluster_pb2.SetUserOperation,
    credential: Credential | None,
) -> metadata_pb2.Change | LogError:
    """A new user, or another password."""
    problem = _user_problem(op.name)
    if problem is not None:
        return InvalidRequest(problem)
    if not op.password or credential is None or not (credential.scheme and credential.salt and credential.hash):
        return InvalidRequest(f"user {op.name} needs a password")
    kept = metadata_pb2.Credential(
        scheme=credential.scheme,
        salt=credential.salt,
        hash=credential.hash,
        n=credential.n,
        r=credential.r,
        p=credential.p,
    )
    return metadata_pb2.Change(set_user=metadata_pb2.SetUser(name=op.name, credential=kept))


def delete_user(state: ClusterState, op: cluster_pb2.DeleteUserOperation) -> metadata_pb2.Change | LogError:
    """A user goes; its ACLs and quotas stay."""
    if op.name not in state.users:
        return UnknownName("user", op.name)
    return metadata_pb2.Change(delete_user=metadata_pb2.DeleteUser(name=op.name))


def create_acl(
    state: ClusterState,  # noqa: ARG001 - every decision takes the state
    op: cluster_pb2.CreateAclOperation,
) -> metadata_pb2.Change | LogError:
    """A new rule."""
    acl = _checked(op.acl)
    if isinstance(acl, LogError):
        return acl
    return metadata_pb2.Change(create_acl=metadata_pb2.CreateAcl(acl=acl))


def delete_acl(state: ClusterState, op: cluster_pb2.DeleteAclOperation) -> metadata_pb2.Change | LogError:
    """Exactly this rule goes."""
    acl = _checked(op.acl)
    if isinstance(acl, LogError):
        return acl
    rule = Acl(acl.principal, acl.resource, acl.resource_name, acl.pattern, acl.operation, acl.deny, acl.host)
    if rule not in state.acls:
        return UnknownName("ACL", _described(acl))
    return metadata_pb2.Change(delete_acl=metadata_pb2.DeleteAcl(acl=acl))


def alter_quota(
    state: ClusterState,  # noqa: ARG001 - every decision takes the state
    op: cluster_pb2.AlterQuotaOperation,
) -> metadata_pb2.Change | LogError:
    """Limits of a user, a client id, the pair, or everybody else."""
    if op.entity.user:
        problem = _user_problem(op.entity.user)
        if problem is not None:
            return InvalidRequest(problem)
    if len(op.entity.client_id) > _MAX_NAME_LENGTH or not op.entity.client_id.isprintable():
        return InvalidRequest(f"a client id has at most {_MAX_NAME_LENGTH} printable characters")
    for key in (*op.set, *op.remove):
        if key not in QUOTA_KEYS:
            near = get_close_matches(key[:100], QUOTA_KEYS, n=1)
            return UnknownConfig(key[:300], "quota", near[0] if near else None)
    for key, value in op.set.items():
        if not isfinite(value) or value <= 0:
            return InvalidRequest(f"{key} cannot be {value}: a quota is a positive number; remove it to lift the limit")
        if key in op.remove:
            return InvalidRequest(f"{key} is both set and removed")
    return metadata_pb2.Change(alter_quota=metadata_pb2.AlterQuota(entity=op.entity, set=op.set, remove=op.remove))


def redacted(name: str, credential: Credential) -> dict[str, str | int]:
    """A user as a dump may show it: the cost of the hash, but neither the hash nor its salt."""
    return {"name": name, "scheme": credential.scheme, "n": credential.n, "r": credential.r, "p": credential.p}


def _checked(acl: metadata_pb2.Acl) -> metadata_pb2.Acl | LogError:
    """The rule in the one form in which it is kept, so that it can be found again to be deleted."""
    user = acl.principal.removeprefix(PRINCIPAL_PREFIX)
    if user == acl.principal or (user != ANY and _user_problem(user) is not None):
        return InvalidRequest(
            f"principal {acl.principal[:300]!r} is not {PRINCIPAL_PREFIX}<name> or {PRINCIPAL_PREFIX}*"
        )
    problem = _enum_problem(acl) or _name_problem(acl)
    if problem is not None:
        return InvalidRequest(f"ACL for {acl.principal}: {problem}")
    host = ""
    if acl.host not in ("", ANY):
        try:
            host = str(ip_address(acl.host))
        except ValueError:
            return InvalidRequest(f"ACL for {acl.principal}: {acl.host[:100]!r} is no IP address, and not *")
    kept = metadata_pb2.Acl()
    kept.CopyFrom(acl)
    kept.host = host
    return kept


def _enum_problem(acl: metadata_pb2.Acl) -> str | None:
    # Zero is never sent, and a number of a later release would allow or deny nothing that anybody here understands.
    if acl.resource not in metadata_pb2.AclResource.values()[1:]:
        return "it names no resource that this release knows"
    if acl.pattern not in metadata_pb2.AclPattern.values()[1:]:
        return "it says neither literal nor prefixed"
    if acl.operation not in metadata_pb2.AclOperation.values()[1:]:
        return "it names no operation that this release knows"
    return None


def _name_problem(acl: metadata_pb2.Acl) -> str | None:
    name, literal = acl.resource_name, acl.pattern == metadata_pb2.ACL_PATTERN_LITERAL
    if acl.resource == metadata_pb2.ACL_RESOURCE_CLUSTER:
        return None if literal and not name else "the cluster has no name, and no prefix"
    if not name or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        return f"the name of its resource has 1 to {_MAX_NAME_LENGTH} printable characters"
    if name == ANY:
        return None if literal else "* is every name by itself, not a prefix"
    if acl.resource == metadata_pb2.ACL_RESOURCE_TOPIC:
        try:
            # A letter more makes a name of what is a legal prefix, such as a dot.
            check_topic_name(name if literal else f"{name}a")
        except InvalidTopicName as problem:
            return str(problem)
    return None


def _user_problem(name: str) -> str | None:
    if _USER_NAME.fullmatch(name):
        return None
    return f"user name {name[:300]!r}: 1 to 255 printable ASCII characters without blanks, ':', ',' and '*'"


def _described(acl: metadata_pb2.Acl) -> str:
    effect = "deny" if acl.deny else "allow"
    operation = metadata_pb2.AclOperation.Name(acl.operation).removeprefix("ACL_OPERATION_").lower()
    resource = metadata_pb2.AclResource.Name(acl.resource).removeprefix("ACL_RESOURCE_").lower()
    pattern = "" if acl.pattern == metadata_pb2.ACL_PATTERN_LITERAL else "..."
    return f"{effect} {acl.principal} {operation} on {resource} {acl.resource_name}{pattern}".rstrip()
