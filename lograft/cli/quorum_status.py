"""What ``lograft quorum status`` asks, concludes and shows."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lograft.cli.text import shown_size
from lograft.contract.errors import LogError, QuorumUnavailable
from lograft.v1 import quorum_pb2

# More than a follower is ever behind while it keeps up: entries are committed one at a time.
FAR_BEHIND = 1_000
_WIDTH_IN_A_PIPE = 200

Ask = Callable[[str], Awaitable[quorum_pb2.StatusResponse]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node said, or why it said nothing."""

    # Empty if nobody knows: an address that was given, and that does not answer.
    name: str
    address: str
    status: quorum_pb2.StatusResponse | None
    error: str = ""

    @property
    def shown_name(self) -> str:
        """For people."""
        return self.name or self.address


@dataclass(frozen=True, slots=True)
class Report:
    """The quorum as its nodes describe it."""

    answers: tuple[Answer, ...]
    leader: str | None
    # Applied behind the leader's commit, by full id of the node.
    lags: Mapping[str, int]
    # What makes the quorum unhealthy, in words.
    problems: tuple[str, ...]
    # What is worth saying and does no harm.
    remarks: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


async def ask_all(ask: Ask, addresses: Mapping[str, str]) -> list[Answer]:
    """Ask the nodes at these addresses, by name or by address, and then the members that they know besides."""
    answers = list(await asyncio.gather(*(_ask(ask, name, address) for name, address in addresses.items())))
    seen = {answer.name for answer in answers} | {answer.address for answer in answers}
    others = {
        member.name: member.address
        for answer in answers
        if answer.status is not None
        for member in answer.status.members
        if member.name not in seen and member.address not in seen
    }
    answers += await asyncio.gather(*(_ask(ask, name, address) for name, address in others.items()))
    return _without_repeats(answers)


async def _ask(ask: Ask, name: str, address: str) -> Answer:
    try:
        status = await ask(address)
    except LogError as error:
        reason = error.reason if isinstance(error, QuorumUnavailable) else str(error)
        # A node that is known by its address alone has no name yet.
        return Answer("" if name == address else name, address, None, reason.removeprefix(f"{address}: "))
    return Answer(status.node, address, status)


def _without_repeats(answers: list[Answer]) -> list[Answer]:
    """One answer per node: it may have been asked at two addresses. Silent ones get the name that others know."""
    names = {m.address: m.name for a in answers if a.status is not None for m in a.status.members}
    answered = {a.status.directory_id: a for a in reversed(answers) if a.status is not None}
    silent = [Answer(a.name or names.get(a.address, ""), a.address, None, a.error) for a in answers if a.status is None]
    return sorted([*answered.values(), *silent], key=lambda answer: answer.shown_name)


def assess(answers: list[Answer]) -> Report:
    """What the answers say about the quorum."""
    statuses = [answer.status for answer in answers if answer.status is not None]
    leading = sorted((s for s in statuses if s.state == "leading"), key=lambda status: status.term)
    leader = leading[-1] if leading else None
    problems: list[str] = []
    remarks: list[str] = []
    if leader is None:
        named = sorted({s.leader for s in statuses if s.leader})
        rumour = f"; some believe that {', '.join(named)} does" if named else ""
        problems.append(f"nobody leads: changes are not possible{rumour}")
    elif not leader.controller:
        problems.append(f"{leader.node} leads but is not the controller yet: ask again")
    for stale in leading[:-1]:
        problems.append(f"{stale.node} still believes to lead, in the older term {stale.term}")
    believers = leader.members if leader is not None else [m for s in statuses for m in s.members]
    voters = {(member.name, member.directory_id) for member in believers}
    lags = {}
    # By text: what all followers say of one node is said once.
    complaints: dict[str, list[str]] = {}
    for answer in answers:
        status = answer.status
        if status is None:
            # While nobody leads, and by name if it is known: everyone may be a member.
            counts = leader is None or not answer.name or answer.name in {name for name, _ in voters}
            text = f"{answer.shown_name} does not answer ({answer.error})"
            (problems if counts else remarks).append(text if counts else f"{text}, and is not a member")
            continue
        if (status.node, status.directory_id) not in voters:
            remarks.append(f"{status.node}: {status.problem or 'not a member any more'}")
            continue
        if status.problem:
            complaints.setdefault(status.problem, []).append(status.node)
        if leader is not None:
            lags[status.directory_id] = lag = max(leader.commit_index - status.applied_index, 0)
            if lag > FAR_BEHIND:
                problems.append(f"{status.node} is {lag:,} entries behind {leader.node}")
    problems += [f"{', '.join(nodes)}: {complaint}" for complaint, nodes in complaints.items()]
    if leader is not None:
        silent = {answer.name for answer in answers if answer.status is None}
        for name, _ in sorted(voters - {(status.node, status.directory_id) for status in statuses}):
            if name not in silent:
                problems.append(f"{name} has another directory than the member of that name: remove it, then add it")
    problems += _disagreements([s for s in statuses if (s.node, s.directory_id) in voters])
    return Report(tuple(answers), leader.node if leader is not None else None, lags, tuple(problems), tuple(remarks))


def _disagreements(statuses: list[quorum_pb2.StatusResponse]) -> list[str]:
    problems = []
    clusters = {status.cluster_id for status in statuses if status.cluster_id}
    if len(clusters) > 1:
        problems.append(f"the nodes belong to different clusters: {', '.join(sorted(clusters))}")
    beliefs: dict[frozenset[tuple[str, str]], list[str]] = {}
    for status in statuses:
        belief = frozenset((member.name, member.directory_id) for member in status.members)
        beliefs.setdefault(belief, []).append(status.node)
    if len(beliefs) > 1:
        # Names alone would look equal where a node was wiped and added again.
        told = "; ".join(
            f"{', '.join(nodes)} {'says' if len(nodes) == 1 else 'say'} "
            + (", ".join(f"{name} ({directory_id[:6]})" for name, directory_id in sorted(belief)) or "nobody")
            for belief, nodes in beliefs.items()
        )
        problems.append(f"the nodes disagree about the members: {told}")
    return problems


def show_report(report: Report) -> None:
    """A table, and what is wrong in words."""
    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, width=None if terminal else _WIDTH_IN_A_PIPE)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("node", "address", "state", "leader"):
        table.add_column(column)
    for column in ("term", "commit", "applied", "lag", "journal"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("members by this node")
    for answer in report.answers:
        table.add_row(*_row(answer, report))
    console.print(table)
    for remark in report.remarks:
        click.echo(f"{click.style('note:', fg='yellow')} {remark}")
    for problem in report.problems:
        click.echo(f"{click.style('problem:', fg='red', bold=True)} {problem}")
    if report.healthy:
        click.echo(f"{click.style('healthy', fg='green', bold=True)}, {report.leader} leads")


def _row(answer: Answer, report: Report) -> list[Text]:
    status = answer.status
    if status is None:
        return [Text(answer.shown_name), Text(answer.address), Text("no answer", style="red"), *[Text("-")] * 7]
    style = {"leading": "green", "following": ""}.get(status.state, "yellow")
    lag = report.lags.get(status.directory_id)
    return [
        Text(status.node),
        Text(answer.address),
        Text(status.state, style=style),
        Text(status.leader or "-"),
        *(Text(str(number)) for number in (status.term, status.commit_index, status.applied_index)),
        Text("-" if lag is None else str(lag), style="red" if (lag or 0) > FAR_BEHIND else ""),
        Text(shown_size(status.journal_bytes)),
        Text(", ".join(member.name for member in status.members) or "-"),
    ]


def report_fields(report: Report) -> dict[str, object]:
    """For programs."""
    return {
        "healthy": report.healthy,
        "leader": report.leader,
        "problems": list(report.problems),
        "remarks": list(report.remarks),
        "nodes": [_answer_fields(answer, report) for answer in report.answers],
    }


def _answer_fields(answer: Answer, report: Report) -> dict[str, object]:
    status = answer.status
    fields: dict[str, object] = {"name": answer.name or None, "address": answer.address, "answers": status is not None}
    if status is None:
        return {**fields, "error": answer.error}
    plain = (
        "state", "leader", "controller", "controller_epoch", "term", "commit_index", "applied_index", "last_index",
        "first_index", "snapshot_version", "journal_bytes", "feature_level", "cluster_id", "directory_id", "problem",
    )  # fmt: skip
    return {
        **fields,
        **{name: getattr(status, name) for name in plain},
        "lag": report.lags.get(status.directory_id),
        "members": [{"name": m.name, "directory_id": m.directory_id, "address": m.address} for m in status.members],
    }
