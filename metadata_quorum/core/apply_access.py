"""Changes of users, ACLs and quotas.

Part of `apply`: every function checks first, then stores, and returns what it gave out or why it was rejected.
"""

from math import isfinite

from lograft.contract.errors import InvalidRequest, LogError, UnknownName
from lograft.metadata_quorum.core.model import Acl, ClusterState, Credential, QuotaKey
from lograft.v1 import metadata_pb2


def set_user(state: ClusterState, change: metadata_pb2.SetUser, version: int) -> metadata_pb2.Applied | LogError:
    """Create a user or change the credential."""
    if not change.name:
        return InvalidRequest("a user needs a name")
    kept = change.credential
    state.users[change.name] = Credential(kept.scheme, kept.salt, kept.hash, kept.n, kept.r, kept.p)
    return metadata_pb2.Applied(version=version)


def delete_user(state: ClusterState, change: metadata_pb2.DeleteUser, version: int) -> metadata_pb2.Applied | LogError:
    """Forget a user."""
    if change.name not in state.users:
        return UnknownName("user", change.name)
    del state.users[change.name]
    return metadata_pb2.Applied(version=version)


def create_acl(state: ClusterState, change: metadata_pb2.CreateAcl, version: int) -> metadata_pb2.Applied | LogError:
    """Add a rule; twice is the same as once."""
    acl = acl_from(change.acl)
    if not acl.principal:
        return InvalidRequest("an ACL needs a principal")
    # Never sent (0), or of a later release: a rule that nobody here understands would silently allow or deny nothing.
    if (
        acl.resource not in metadata_pb2.AclResource.values()[1:]
        or acl.pattern not in metadata_pb2.AclPattern.values()[1:]
        or acl.operation not in metadata_pb2.AclOperation.values()[1:]
    ):
        return InvalidRequest(f"an ACL names a resource, a pattern and an operation: {described(acl)}")
    state.acls[acl] = None
    return metadata_pb2.Applied(version=version)


def delete_acl(state: ClusterState, change: metadata_pb2.DeleteAcl, version: int) -> metadata_pb2.Applied | LogError:
    """Remove exactly this rule."""
    acl = acl_from(change.acl)
    if acl not in state.acls:
        return UnknownName("ACL", described(acl))
    del state.acls[acl]
    return metadata_pb2.Applied(version=version)


def alter_quota(state: ClusterState, change: metadata_pb2.AlterQuota, version: int) -> metadata_pb2.Applied | LogError:
    """Set and remove limits. What is both removed and set is set."""
    for name, value in change.set.items():
        # Not a number is not equal to itself: states could not be compared any more.
        if not isfinite(value) or value < 0:
            return InvalidRequest(f"{name} cannot be {value}")
    key = QuotaKey(change.entity.user, change.entity.client_id)
    removed = set(change.remove)
    values = {name: value for name, value in state.quotas.get(key, {}).items() if name not in removed}
    values |= {name: value + 0.0 for name, value in change.set.items()}  # -0.0 becomes 0.0: equal, and equal bytes
    # Another dict, never the same one changed: a snapshot under way may hold the old one.
    if values:
        state.quotas[key] = values
    else:
        state.quotas.pop(key, None)
    return metadata_pb2.Applied(version=version)


def acl_from(acl: metadata_pb2.Acl) -> Acl:
    """The rule as the state holds it."""
    return Acl(acl.principal, acl.resource, acl.resource_name, acl.pattern, acl.operation, acl.deny, acl.host)


def described(acl: Acl) -> str:
    """The rule for people."""
    effect = "deny" if acl.deny else "allow"
    return f"{effect} {acl.principal} operation {acl.operation} on resource {acl.resource} {acl.resource_name!r}"
