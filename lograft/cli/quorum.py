"""``lograft quorum``: run a node of the metadata quorum, look at the quorum, change its members."""

import asyncio
import gc
import json
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop
from click.core import ParameterSource

from lograft.cli.quorum_status import Report, ask_all, assess, report_fields, show_report
from lograft.cli.text import counted
from lograft.contract.process import tune_process
from lograft.metadata_quorum.channels import Tls
from lograft.metadata_quorum.client import QuorumClient
from lograft.metadata_quorum.config import QuorumConfig, load_config
from lograft.metadata_quorum.recover import Standing, StoppedNode, stopped_node
from lograft.metadata_quorum.server import running
from lograft.v1 import metadata_pb2

SERVERS_VARIABLE = "LOGRAFT_QUORUM"
_STATUS_TIMEOUT_S = 3.0
_CHANGE_TIMEOUT_S = 20.0
_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def quorum() -> None:
    """Run and look after the metadata quorum, which stands in place of ZooKeeper.

    docs/quorum.md is the operator's guide.
    """


# -- Which quorum --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The quorum that a command speaks to."""

    # By name if a configuration file names them, otherwise by address.
    addresses: dict[str, str]
    tls: Tls | None = None

    def client(self, timeout_s: float = _CHANGE_TIMEOUT_S) -> QuorumClient:
        """A client; close it."""
        return QuorumClient(self.addresses, tls=self.tls, timeout_s=timeout_s)


def quorum_options(command: _Command) -> _Command:
    """Adds --servers and --config; the command gets ``target``."""

    def find(ctx: click.Context, path: Path | None) -> Target:
        servers = ctx.params.pop("servers", None)
        from_environment = ctx.get_parameter_source("servers") is ParameterSource.ENVIRONMENT
        config = load_config(path) if path else None
        tls = config.tls if config else None
        if servers and not (config and from_environment):
            return Target({address: address for address in servers}, tls)
        if config is None:
            node = ctx.params.get("node")
            if node:
                return Target({node: node})
            where = f"--servers host:port,… (or {SERVERS_VARIABLE} in the environment), or --config FILE"
            raise click.UsageError(f"which quorum? Give {where}", ctx)
        return Target({config.name: config.advertised_address, **config.peers}, tls)

    command = click.option(
        "--config",
        "target",
        type=_FILE,
        callback=lambda ctx, _, path: find(ctx, path),
        metavar="FILE",
        help="A node's TOML file: its members are asked, with its certificates.",
    )(command)
    return click.option(
        "--servers",
        envvar=SERVERS_VARIABLE,
        is_eager=True,
        callback=lambda _ctx, _param, text: _addresses(text),
        metavar="HOST:PORT,…",
        help=f"Some or all nodes of the quorum ({SERVERS_VARIABLE}).",
    )(command)


def address_option(name: str, **attributes: Any) -> Callable[[_Command], _Command]:
    """An option that takes one host:port; ``--node`` is enough to find a quorum."""
    return click.option(
        name,
        metavar="HOST:PORT",
        is_eager=True,
        callback=lambda _ctx, _param, text: _address(text) if text is not None else None,
        **attributes,
    )


def _addresses(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [_address(part.strip()) for part in text.split(",") if part.strip()]


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise click.BadParameter(f"{text!r} is not host:port")
    return text


# -- run -----------------------------------------------------------------------------------------------------------


@quorum.command(short_help="Run one node.")
@click.option("--config", "path", required=True, type=_FILE, help="TOML file; docs/quorum.md explains every key.")
def run(path: Path) -> None:
    """Run one node of the quorum until it is told to stop (SIGTERM or Ctrl-C).

    Writes one line of JSON to stdout when it listens, and its log to stderr.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    tune_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(load_config(path)))


async def _run(config: QuorumConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(config) as server:
        # The state just loaded lives for long: without this every full collection walks through all of it.
        gc.collect()
        gc.freeze()
        # One line for whoever started us: everything is open from here on.
        click.echo(json.dumps({"ready": server.me.name, "port": server.port}))
        sys.stdout.flush()
        stopped, failed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(server.failed())
        await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
        error = failed.result() if failed.done() else None
        for task in (stopped, failed):
            task.cancel()
    if error is not None:
        raise error


# -- status --------------------------------------------------------------------------------------------------------


@quorum.command(short_help="Who leads, how far each node is, what is wrong.")
@quorum_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def status(ctx: click.Context, target: Target, as_json: bool) -> None:
    """Ask every node of the quorum how it stands.

    Nodes that are members but were not named are asked as well. Exit code 0 if the quorum is healthy; 1 if nobody
    leads, a member does not answer or lags far behind, or the nodes disagree about who the members are.

    \b
    Examples:
      lograft quorum status --servers q1:9400,q2:9400,q3:9400
      lograft quorum status --config q1.toml --json | jq .leader
    """
    report = asyncio.run(_report(target))
    if as_json:
        sys.stdout.write(json.dumps(report_fields(report), indent=2) + "\n")
    else:
        show_report(report)
    ctx.exit(0 if report.healthy else 1)


async def _report(target: Target) -> Report:
    async with target.client(_STATUS_TIMEOUT_S) as client:
        return assess(await ask_all(client.status, target.addresses))


# -- changes -------------------------------------------------------------------------------------------------------


@quorum.command(short_help="Hand the leadership to another node.")
@quorum_options
@click.option("--to", metavar="NAME", default="", help="Which node; by default the one that is furthest.")
def transfer(target: Target, to: str) -> None:
    """Hand the leadership to another node, for instance before the leader's machine is restarted.

    \b
    Example:
      lograft quorum transfer --config q1.toml --to q2
    """
    asyncio.run(_transfer(target, to))


async def _transfer(target: Target, to: str) -> None:
    before = await _report(target)
    if to and before.leader == to:
        click.echo(f"{to} leads already")
        return
    async with target.client() as client:
        leader = await client.transfer(to)
    was = f", {before.leader} did before" if before.leader else ""
    click.echo(f"{leader} leads now{was}")


@quorum.command(short_help="Add a node.")
@click.argument("name")
@click.argument("address", callback=lambda _ctx, _param, text: _address(text))
@quorum_options
def add(target: Target, name: str, address: str) -> None:
    """Add the node NAME as a voter. Others will dial it at ADDRESS (host:port).

    It must be running already, with an empty directory. One change at a time: see with 'lograft quorum status' that
    it has caught up before the next one.

    \b
    Example:
      lograft quorum add q4 10.0.0.4:9400 --servers 10.0.0.1:9400,10.0.0.2:9400
    """
    members = asyncio.run(_changed(target, lambda client: client.add_member(name, address)))
    click.echo(f"{name} is a member now; {_named(members)}")


@quorum.command(short_help="Remove a node.")
@click.argument("name")
@quorum_options
def remove(target: Target, name: str) -> None:
    """Remove the node NAME from the voters.

    If it leads, it hands over first. Stop its process afterwards; should it ever come back, then with an empty
    directory and by 'lograft quorum add'.

    \b
    Example:
      lograft quorum remove q3 --config q1.toml
    """
    members = asyncio.run(_changed(target, lambda client: client.remove_member(name)))
    click.echo(f"{name} is not a member any more; {_named(members)}")


async def _changed(target: Target, change: Callable[[QuorumClient], Any]) -> list[metadata_pb2.QuorumMember]:
    async with target.client() as client:
        members: list[metadata_pb2.QuorumMember] = await change(client)
        return members


def _named(members: list[metadata_pb2.QuorumMember]) -> str:
    names = ", ".join(member.name for member in members)
    text = f"the quorum is {names}: it survives the loss of {counted((len(members) - 1) // 2, 'node')}"
    if len(members) % 2 == 0:
        text += f", no more than {len(members) - 1} would; an odd number is better"
    return text


# -- recover -------------------------------------------------------------------------------------------------------


@quorum.command(short_help="Go on after the majority is lost for good.")
@click.option("--config", "path", required=True, type=_FILE, metavar="FILE", help="TOML file of the surviving node.")
@click.option("--dry-run", is_flag=True, help="Change nothing: show where this node stands.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; asks nothing, so give --yes or --dry-run.")
@click.pass_context
def recover(ctx: click.Context, path: Path, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Turn one surviving node into a quorum of its own. THE LAST RESORT: it can lose committed changes.

    Only if the majority of the quorum is lost for good. Works on the files of this machine; the node must be stopped.
    First compare the survivors with --dry-run and take the one with the highest last term, and among equals the
    highest last index. No other node of the old quorum may ever run again with its old directory.

    \b
    Examples:
      lograft quorum recover --config q1.toml --dry-run
      lograft quorum recover --config q1.toml
    """
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json needs --yes or --dry-run")
    config = load_config(path)
    with stopped_node(config.directory, config.name) as node:
        if not dry_run:
            node.check()
        if not as_json:
            _show_standing(node.standing, f"{config.name} in {config.directory}")
        if dry_run:
            if as_json:
                _write_standing(node.standing)
            return
        _warn(node.standing)
        if not yes and not _confirmed(node):
            click.echo("nothing was changed", err=True)
            ctx.exit(1)
        after = node.recover(config.advertised_address)
    if as_json:
        _write_standing(after)
        return
    click.echo()
    _show_standing(after, f"{after.name} is a quorum of one now")
    click.echo("Start it, then bring in the others with EMPTY directories: start each, 'lograft quorum add'.")


def _show_standing(standing: Standing, title: str) -> None:
    click.secho(title, bold=True)
    rows = {
        "cluster": standing.cluster_id or "none yet",
        "directory id": standing.directory_id,
        "last term": str(standing.last_term),
        "last index": str(standing.last_index),
        "newest term heard of": str(standing.term),
        "members by its log": ", ".join(member.name for member in standing.members) or "none",
        "holds": ", ".join(
            [
                counted(standing.topics, "topic"),
                counted(standing.partitions, "partition"),
                counted(standing.brokers, "broker"),
            ]
        ),
    }
    if standing.cut_bytes:
        rows["interrupted write"] = f"{counted(standing.cut_bytes, 'byte')}, to be cut: nobody was told of it"
    for name, value in rows.items():
        click.echo(f"  {name:<21} {value}")


def _warn(standing: Standing) -> None:
    others = [member.name for member in standing.members if member.name != standing.name]
    named = ", ".join(others) or "the other nodes"
    click.secho("\nWARNING: this gives up the old quorum.", fg="red", bold=True, err=True)
    for line in (
        f"Changes that only {named} had are gone, although they were answered: topics, partition leaders, users.",
        "What this node has becomes the truth, also what was never known to be committed.",
        f"{named} must NEVER run again with the old directory: there would be two clusters of the same name.",
        "If a majority of the old nodes can be brought back, do that instead: nothing is lost then.",
    ):
        click.echo(f"  - {line}", err=True)


def _confirmed(node: StoppedNode) -> bool:
    name = node.standing.name
    try:
        typed: str = click.prompt(f"Type the name of this node ({name}) to go on", err=True)
    except click.Abort:
        return False
    return typed.strip() == name


def _write_standing(standing: Standing) -> None:
    fields = {name: getattr(standing, name) for name in standing.__dataclass_fields__}
    fields["members"] = [member._asdict() for member in standing.members]
    sys.stdout.write(json.dumps(fields, indent=2) + "\n")
