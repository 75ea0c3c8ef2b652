"""``lograft metadata``: the cluster's metadata as the quorum holds it, and as it changes. Never shows credentials."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import fields
from itertools import cycle
from typing import Any, cast

import click
from google.protobuf.message import Message

from lograft.cli.quorum import Target, address_option, quorum_options
from lograft.cli.text import compact_json
from lograft.contract.errors import QuorumUnavailable
from lograft.metadata_quorum.client import QuorumClient, StateFollower
from lograft.metadata_quorum.core.apply import apply_entry, skip_entry, unsupported
from lograft.metadata_quorum.core.model import Broker, ClusterState, ConfigKey, Topic
from lograft.v1 import cluster_pb2, metadata_pb2

_DUMP_TIMEOUT_S = 10.0
_RECONNECT_S = 0.3
_SECRETS = {"salt", "hash"}


@click.group()
def metadata() -> None:
    """See what the quorum knows: brokers, topics, partitions, configuration, users, ACLs, quotas."""


@metadata.command(short_help="The whole state as JSON.")
@quorum_options
@address_option("--node", help="Ask this node and no other.")
@click.option("--current", is_flag=True, help="Everything that was committed when the command began.")
def dump(target: Target, node: str | None, current: bool) -> None:
    """Show the whole state as one JSON object. Passwords, also salted and hashed, are left out.

    Any node answers, with what it has applied; that may be a moment old. --current first commits an empty change, which
    needs a leader, and waits until the node has reached it.

    \b
    Examples:
      lograft metadata dump --config q1.toml | jq '.topics[].name'
      lograft metadata dump --node 10.0.0.2:9400 --current
    """
    state = asyncio.run(_dumped(target, node, current))
    sys.stdout.write(json.dumps(state_fields(state), indent=2) + "\n")


@metadata.command(short_help="Every change as it is committed.")
@quorum_options
@address_option("--node", help="Watch this node and no other.")
@click.option("--from", "version", type=click.IntRange(min=1), metavar="VERSION", help="Begin after this version.")
def watch(target: Target, node: str | None, version: int | None) -> None:
    """Write one line of JSON for each committed change, until Ctrl-C. Passwords are left out.

    Begins with the next change, or with the one after VERSION. If a node goes away it goes on with another. Where the
    changes are not kept any more, a line of kind "snapshot" says up to which version they are left out.

    A change that was rejected when it was applied (a repeat, or one that another has overtaken) has "rejected"; with
    --from that is not known.

    \b
    Examples:
      lograft metadata watch --config q1.toml
      lograft metadata watch --from 1200 | jq -c 'select(.kind == "fence_broker")'
    """
    printer = ChangePrinter(version, _write_line)
    asyncio.run(_watch(target, node, printer))


# -- dump ----------------------------------------------------------------------------------------------------------


async def _dumped(target: Target, node: str | None, current: bool) -> ClusterState:
    addresses = [node] if node else list(target.addresses.values())
    problem = ""
    async with target.client(_DUMP_TIMEOUT_S) as client:
        least = await _committed_version(client) if current else 0
        try:
            async with asyncio.timeout(_DUMP_TIMEOUT_S):
                for address in addresses:
                    try:
                        return await _state_of(client, address, least)
                    except QuorumUnavailable as error:
                        problem = error.reason
        except TimeoutError:
            problem = f"no whole state within {_DUMP_TIMEOUT_S:.0f} s"
    raise QuorumUnavailable(problem)


async def _committed_version(client: QuorumClient) -> int:
    """A version that has everything which is committed now."""
    barrier = cluster_pb2.Operation(barrier=cluster_pb2.BarrierOperation())
    return (await client.do(barrier)).version


async def _state_of(client: QuorumClient, address: str, least: int) -> ClusterState:
    follower = StateFollower()
    async with aclosing(_stream(client.watch(follower, address))) as versions:
        async for version in versions:
            # Zero: the snapshot is not complete yet.
            if version and follower.state.version >= max(version, least):
                return follower.state
    raise QuorumUnavailable(f"{address} has ended the stream")


def _stream(versions: AsyncIterator[int]) -> Any:
    """An async generator, although it is typed as less."""
    return versions


def state_fields(state: ClusterState) -> dict[str, object]:
    """The state for programs; without credentials, and without what only serves to answer repeats."""
    of_cluster = state.configs.get(ConfigKey(metadata_pb2.CONFIG_RESOURCE_CLUSTER, ""), {})
    return {
        "cluster_id": state.cluster_id,
        "version": state.version,
        "term": state.term,
        "feature_level": state.feature_level,
        "controller": {"node": state.controller_node, "epoch": state.controller_epoch},
        "members": [member._asdict() for member in state.members],
        "next_broker_epoch": state.next_broker_epoch,
        "next_producer_id": state.next_producer_id,
        "config": dict(sorted(of_cluster.items())),
        "brokers": [_broker_fields(state, state.brokers[broker_id]) for broker_id in sorted(state.brokers)],
        "topics": [_topic_fields(state, topic) for topic in sorted(state.topics.values(), key=lambda each: each.name)],
        "users": [{"name": name, "scheme": state.users[name].scheme} for name in sorted(state.users)],
        "acls": [
            plain_fields(metadata_pb2.Acl(**acl._asdict()))  # names instead of the numbers of enums
            for acl in sorted(state.acls)
        ],
        "quotas": [
            {**key._asdict(), "limits": dict(sorted(state.quotas[key].items()))} for key in sorted(state.quotas)
        ],
    }


def _broker_fields(state: ClusterState, broker: Broker) -> dict[str, object]:
    values = {field.name: getattr(broker, field.name) for field in fields(broker)}
    values["endpoints"] = [endpoint._asdict() for endpoint in broker.endpoints]
    key = ConfigKey(metadata_pb2.CONFIG_RESOURCE_BROKER, str(broker.broker_id))
    return {**values, "config": dict(sorted(state.configs.get(key, {}).items()))}


def _topic_fields(state: ClusterState, topic: Topic) -> dict[str, object]:
    key = ConfigKey(metadata_pb2.CONFIG_RESOURCE_TOPIC, topic.topic_id)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "created_at_ms": topic.created_at_ms,
        "config": dict(sorted(state.configs.get(key, {}).items())),
        "partitions": [
            {"partition": number, **partition._asdict()} for number, partition in enumerate(topic.partitions)
        ],
    }


# -- watch ---------------------------------------------------------------------------------------------------------


class ChangePrinter(StateFollower):
    """A follower that gives away what it takes in, one line per change.

    Without ``after`` it holds the whole state, so it can say what was rejected; with it, it only knows its version.
    """

    def __init__(self, after: int | None, write: Callable[[dict[str, object]], None]) -> None:
        super().__init__()
        self._write = write
        self._whole = after is None
        self._begun = after is not None
        if after is not None:
            self.state.version = after

    def take(self, response: cluster_pb2.WatchResponse) -> None:
        """Take in one message, and write the changes in it."""
        before = self.state.version
        super().take(cluster_pb2.WatchResponse(snapshot_pieces=response.snapshot_pieces))
        if self.state.version != before:
            self._whole = True
            if self._begun:
                self._write({"version": self.state.version, "kind": "snapshot", "left_out_after": before})
            self._begun = True
        self.state.cluster_id = self.state.cluster_id or response.cluster_id
        for watched in response.entries:
            if watched.version > self.state.version:
                self._take_entry(watched)

    def _take_entry(self, watched: cluster_pb2.WatchedEntry) -> None:
        entry = metadata_pb2.MetadataEntry.FromString(watched.entry)
        too_new = unsupported(entry)
        if too_new is not None:
            raise too_new
        rejections = [""] * len(entry.changes)
        if watched.entry and self._whole:
            results = apply_entry(self.state, entry, version=watched.version, term=watched.term)
            rejections = [result.rejected.message for result in results]
        else:
            skip_entry(self.state, version=watched.version, term=watched.term)
        for change, rejection in zip(entry.changes, rejections, strict=True):
            kind = change.WhichOneof("kind") or ""
            line: dict[str, object] = {"version": watched.version, "kind": kind}
            if rejection:
                line["rejected"] = rejection
            self._write({**line, **plain_fields(getattr(change, kind))})


async def _watch(target: Target, node: str | None, printer: ChangePrinter) -> None:
    addresses = [node] if node else list(target.addresses.values())
    told = ""
    async with target.client() as client:
        for address in cycle(addresses):
            try:
                async for _ in client.watch(printer, address):
                    if told:
                        click.echo(f"watching {address}, from version {printer.state.version}", err=True)
                        told = ""
            except QuorumUnavailable as error:
                if str(error) != told:
                    told = str(error)
                    click.echo(f"{click.style('note:', fg='yellow')} {told}; trying another node", err=True)
            await asyncio.sleep(_RECONNECT_S)


def _write_line(line: dict[str, object]) -> None:
    sys.stdout.write(compact_json(line) + "\n")
    # Whoever reads along waits for this change, not for the next few kilobytes.
    sys.stdout.flush()


def plain_fields(message: Message) -> dict[str, object]:
    """The fields of a message by name, as JSON can carry them: bytes as hex, enums by name; absent ones left out.

    Of a credential only what is no secret.
    """
    found: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        if isinstance(message, metadata_pb2.Credential) and field.name in _SECRETS:
            continue
        if field.has_presence and not message.HasField(field.name):
            continue
        found[field.name] = _plain(field, getattr(message, field.name))
    return found


def _plain(field: Any, value: Any) -> object:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return dict(sorted(value.items()))
    if isinstance(value, Message):
        return plain_fields(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int | float | str):
        by_number = field.enum_type.values_by_number if field.enum_type is not None else {}
        return by_number[value].name if value in by_number else value
    return [_plain(field, each) for each in cast("list[object]", value)]
