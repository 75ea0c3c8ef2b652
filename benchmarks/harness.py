"""Measuring on a noisy machine: slices of each side in turn, medians, rows against bars, a table and a JSON file.

Knows nothing about what is measured.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

Fact = float | str | list[float]
Detail = Mapping[str, Fact]
Tick = Callable[[], None]
# Runs one slice and returns what it cost, usually seconds. What it does besides (evicting caches) it does not count.
Side = Callable[[], float]

_LINE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Bar:
    """What a value has to reach, or must not exceed."""

    relation: Literal[">=", "<=", "<"]
    limit: float

    def holds(self, value: float) -> bool:
        """Whether the value is good enough, unrounded."""
        match self.relation:
            case ">=":
                return value >= self.limit
            case "<=":
                return value <= self.limit
            case "<":
                return value < self.limit

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result."""

    measure: str
    value: float
    unit: str
    bar: Bar
    detail: Detail = field(default_factory=dict)
    note: str = ""
    # What must hold besides the bar, such as "flat".
    also: bool = True

    @property
    def holds(self) -> bool:
        """Whether the row keeps its promise."""
        return self.also and self.bar.holds(self.value)

    def as_json(self) -> dict[str, object]:
        """The row as it is written to the results."""
        return {
            "measure": self.measure,
            "value": rounded(self.value),
            "unit": self.unit,
            "bar": str(self.bar),
            "holds": self.holds,
            "detail": dict(self.detail),
            "note": self.note,
        }


class Samples:
    """What the slices of each side cost."""

    def __init__(self, costs: Mapping[str, list[float]]) -> None:
        self.costs = costs

    def median(self, side: str) -> float:
        """The middle cost of a side's slices."""
        return median(self.costs[side])

    def spread(self, side: str) -> float:
        """Distance of the quartiles as a share of the median: 0.1 is quiet, 0.5 a very noisy machine."""
        costs = self.costs[side]
        if len(costs) < 4:
            return (max(costs) - min(costs)) / self.median(side)
        low, _, high = quantiles(costs, n=4)
        return (high - low) / self.median(side)

    def ratio(self, side: str, against: str) -> float:
        """Median cost of ``side`` as a multiple of that of ``against``."""
        return self.median(side) / self.median(against)

    def total_ratio(self, side: str, against: str) -> float:
        """The same for the sums: counts the rare expensive slice that a median leaves out."""
        return sum(self.costs[side]) / sum(self.costs[against])


def alternate(sides: Mapping[str, Side], slices: int, tick: Tick = lambda: None) -> Samples:
    """Run slices of the sides in turn, forwards and backwards, so that a slow moment of the machine hits all alike."""
    names = list(sides)
    costs: dict[str, list[float]] = {name: [] for name in names}
    for number in range(slices):
        for name in names if number % 2 == 0 else reversed(names):
            costs[name].append(sides[name]())
            tick()
    return Samples(costs)


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rounded(number: float) -> float:
    """Four significant digits: more would be a lie."""
    return float(f"{number:.4g}")


def size_text(size_bytes: int) -> str:
    """A size for people, in powers of ten."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes} B"


class Reporter:
    """Progress on stderr: a bar for people, lines for a log file."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(text, highlight=False)

    @contextmanager
    def task(self, title: str, steps: int) -> Iterator[Tick]:
        """A piece of work of so many steps; call what it yields after each."""
        begin = time.monotonic()
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            with Progress(*columns, console=self._console, transient=True) as progress:
                task = progress.add_task(title, total=steps)
                yield lambda: progress.advance(task)
        else:
            self.say(f"{title} ...")
            yield self._line_tick(title, steps)
        self.say(f"{title}: {time.monotonic() - begin:.1f} s")

    def _line_tick(self, title: str, steps: int) -> Tick:
        done, next_line = 0, time.monotonic() + _LINE_EVERY_S

        def tick() -> None:
            nonlocal done, next_line
            done += 1
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + _LINE_EVERY_S
                self.say(f"{title}: {done}/{steps}")

        return tick


def print_table(title: str, rows: list[Row]) -> None:
    """The rows on stdout; those that miss their bar cannot be overlooked."""
    table = Table(title=title, show_lines=True)
    table.add_column("measure", overflow="fold", min_width=24)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("holds", justify="center", no_wrap=True)
    table.add_column("detail", overflow="fold")
    for row in rows:
        shown = list(row.detail.items())[:_SHOWN_DETAILS]
        detail = "\n".join(f"{name}: {_text(fact)}" for name, fact in shown)
        table.add_row(
            row.measure,
            f"{row.value:.3g} {row.unit}",
            str(row.bar),
            "[green]yes[/]" if row.holds else "[bold white on red] NO [/]",
            detail + (f"\n[yellow]{row.note}[/]" if row.note else ""),
        )
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(table)
    missed = [row for row in rows if not row.holds]
    for row in missed:
        console.print(f"[bold red]BAR MISSED[/] {row.measure}: {row.value:.3g} {row.unit}, wanted {row.bar}")
    if not missed:
        console.print(f"[green]all {len(rows)} bars hold[/]")


# The rest is in the JSON file.
_SHOWN_DETAILS = 4


def _text(fact: Fact) -> str:
    if isinstance(fact, list):
        return " ".join(f"{number:.3g}" for number in fact)
    return f"{fact:.4g}" if isinstance(fact, float) else str(fact)


def write_results(folder: Path, suite: str, rows: list[Row], meta: Mapping[str, object]) -> Path:
    """Write ``<suite>.json`` and ``<suite>.meta.json``; where the rows are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{suite}.json"
    for target, content in ((path, [row.as_json() for row in rows]), (folder / f"{suite}.meta.json", dict(meta))):
        temporary = target.with_name(target.name + ".tmp")
        temporary.write_text(json.dumps(content, indent=2) + "\n")
        os.replace(temporary, target)  # noqa: PTH105 - reads like the durable writes elsewhere
    return path
