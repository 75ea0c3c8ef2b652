"""Settings of one quorum process, from a TOML file."""

import dataclasses
import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lograft.contract.errors import InvalidRequest
from lograft.metadata_quorum.channels import Tls
from lograft.metadata_quorum.raft_machine import RaftTiming
from lograft.metadata_quorum.raft_node import SnapshotLimits

_KEYS = {
    "name", "directory", "listen", "advertise", "members", "dial", "timing", "snapshots", "tls",
    "request_timeout_ms", "insecure",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Everything a quorum process is told at its start."""

    # Names the node for ever; letters, digits, '-', '_' and '.'.
    name: str
    # Journal, snapshot and identity. Losing it means to be removed from the quorum and added anew.
    directory: Path
    # host:port; port 0 takes a free one (only for a quorum of one).
    listen: str
    # The nodes of the first quorum and where they can be reached, this one included. Only for the very first start;
    # later the members are what the quorum's log says.
    members: Mapping[str, str] = field(default_factory=dict)
    # Where *this* node dials a peer, if that differs from its address: a proxy, another network.
    dial: Mapping[str, str] = field(default_factory=dict)
    # Where others reach this node; by default what `members` says, or `listen`.
    advertise: str = ""
    timing: RaftTiming = field(default_factory=RaftTiming)
    snapshots: SnapshotLimits = field(default_factory=SnapshotLimits)
    tls: Tls | None = None
    # Without TLS only addresses of the machine itself are listened on, unless this says otherwise.
    insecure: bool = False
    # A change that is not committed within this time is answered with "outcome unknown".
    request_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        problems = []
        if not self.name or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in self.name):
            problems.append(f"name {self.name!r} must be of ASCII letters, digits, '-', '_' and '.'")
        for what, address in [
            ("listen", self.listen),
            *((f"members.{name}", address) for name, address in self.members.items()),
            *((f"dial.{name}", address) for name, address in self.dial.items()),
            *([("advertise", self.advertise)] if self.advertise else []),
        ]:
            if not _is_address(address):
                problems.append(f"{what} must be host:port, not {address!r}")
        if self.members and len(self.members) % 2 == 0:
            problems.append(
                f"{len(self.members)} members survive no more failures than {len(self.members) - 1}: name an odd number"
            )
        if self.request_timeout_ms < 1:
            problems.append("request_timeout_ms must be positive")
        if self.tls is None and not self.insecure and _is_address(self.listen) and not _is_loopback(self.listen):
            problems.append(
                f"listen {self.listen} can be reached from other machines: give [tls] certificate, key and authority, "
                "or say insecure = true"
            )
        if problems:
            raise InvalidRequest("; ".join(problems))

    @property
    def advertised_address(self) -> str:
        """Where others reach this node."""
        return self.advertise or self.members.get(self.name, self.listen)

    @property
    def peers(self) -> Mapping[str, str]:
        """The address to dial for every node that the configuration names."""
        return {**self.members, **self.dial}


def _is_address(address: object) -> bool:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    return bool(host) and port.isdigit() and int(port) < 1 << 16


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def load_config(path: Path) -> QuorumConfig:
    """Read the file. Raises `InvalidRequest` with everything that is wrong in it."""
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is not a TOML file: {error}") from None
    unknown = sorted(values.keys() - _KEYS)
    if unknown:
        raise InvalidRequest(f"{path}: unknown settings {', '.join(unknown)}; known are {', '.join(sorted(_KEYS))}")
    missing = sorted({"name", "directory", "listen"} - values.keys())
    if missing:
        raise InvalidRequest(f"{path}: {', '.join(missing)} must be given")
    base = path.parent
    try:
        values["directory"] = base / values["directory"]
        if "timing" in values:
            values["timing"] = _timing(values["timing"])
        if "snapshots" in values:
            values["snapshots"] = SnapshotLimits(**values["snapshots"])
        if "tls" in values:
            values["tls"] = Tls(**{key: base / value for key, value in values["tls"].items()})
        return QuorumConfig(**values)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(f"{path}: {str(error).replace('__init__() ', '')}") from None


def _timing(values: Mapping[str, int]) -> RaftTiming:
    """Milliseconds in the file, as everywhere in configuration."""
    known = {f.name.removesuffix("_s") + "_ms": f.name for f in dataclasses.fields(RaftTiming)}
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        raise InvalidRequest(f"unknown settings in [timing]: {', '.join(unknown)}; known are {', '.join(known)}")
    return RaftTiming(**{known[key]: value / 1000 for key, value in values.items()})
