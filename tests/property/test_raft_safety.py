"""Raft's promises under everything that may happen to a quorum, over many seeds. The lab checks them after each event.

A failing seed is in the name of the test; `LOGRAFT_TEST_SEED` shifts all of them and `LOGRAFT_TEST_EFFORT` multiplies
their number. The second half of the file shows that the lab would find out: with a guard taken away it does.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lograft.chaos.raft_lab import LabNode, RaftLab, SafetyBroken
from lograft.metadata_quorum import raft_machine
from lograft.metadata_quorum.core.model import Member
from lograft.metadata_quorum.core.overlap import Entry
from lograft.metadata_quorum.journal import MEMBERS, Journal
from lograft.metadata_quorum.raft_machine import RaftMachine, SafetyViolated, raft_id

EFFORT = int(os.environ.get("LOGRAFT_TEST_EFFORT", "1"))
SEED = int(os.environ.get("LOGRAFT_TEST_SEED", "20261118"))
EVENTS = 2500


class Storm:
    """Does something at random to a lab, again and again."""

    def __init__(self, lab: RaftLab) -> None:
        self.lab = lab
        self.chance = lab.chance
        self.proposals = 0
        self.next_directory = 0
        # Messages that will arrive once more, much later.
        self.kept_back: list[tuple[str, str, bytes]] = []
        lab.crash_in_install = 0.2
        # How rough this run is: seeds differ, so that long quiet stretches and chaos both come up.
        self.loss = self.chance.choice([0.0, 0.02, 0.2])
        self.repeat = self.chance.choice([0.0, 0.05, 0.3])
        self.in_order = self.chance.random() < 0.4
        self.events: list[tuple[Callable[[], None], float]] = [
            (self.deliver, 30),
            (self.deliver_late, self.chance.choice([0.0, 3.0])),
            (self.step, 25),
            (self.sync, 20),
            (self.propose, 8),
            (self.crash, self.chance.choice([0.05, 0.4, 1.0])),
            (self.restart, 1.5),
            (self.cut, self.chance.choice([0.0, 0.2])),
            (self.heal, 0.4),
            (self.snapshot, self.chance.choice([0.0, 0.3, 2.0])),
            (self.trim, 2),
            (self.transfer, 0.2),
            (self.change_members, self.chance.choice([0.0, 0.3, 2.0])),
            (self.wipe, self.chance.choice([0.0, 0.05])),
            (self.pause, self.chance.choice([0.3, 1.5])),
        ]

    def run(self, events: int) -> None:
        actions, weights = zip(*self.events, strict=True)
        for action in self.chance.choices(actions, weights, k=events):
            action()
        self.end_well()

    def end_well(self) -> None:
        """Everybody returns, and the quorum goes on with all that was answered."""
        lab = self.lab
        self.heal()
        lab.crash_in_install = 0
        for node in lab.nodes.values():
            if not node.running:
                node.start()
            if node.running:
                node.sync()
                node.trim_to_own_snapshot()
        lab.network.clear()
        lab.settle()
        lab.commit(b"last")
        lab.settle()
        leader = lab.leader
        assert leader is not None
        ids = {raft_id(member) for member in leader.machine.members}
        voters = [node for node in lab.nodes.values() if node.id in ids and node.running]
        lab.run_until(lambda: len({node.state.version for node in voters}) == 1)
        assert len({node.state.cluster_id for node in voters}) == 1
        lab.check_answers()

    def any_node(self) -> LabNode:
        return self.chance.choice(list(self.lab.nodes.values()))

    def deliver(self) -> None:
        lab = self.lab
        for _ in range(self.chance.randint(1, 4)):
            if lab.network:
                place = 0 if self.in_order else self.chance.randrange(min(len(lab.network), 30))
                if self.chance.random() < self.loss:
                    del lab.network[place]
                else:
                    lab.deliver(place, keep=self.chance.random() < self.repeat)
        if len(lab.network) > 400:
            del lab.network[: self.chance.randrange(400)]

    def deliver_late(self) -> None:
        lab = self.lab
        if lab.network and self.chance.random() < 0.5:
            self.kept_back.append(self.chance.choice(lab.network))
        elif self.kept_back:
            lab.network.insert(0, self.kept_back.pop(self.chance.randrange(len(self.kept_back))))
            lab.deliver()

    def step(self) -> None:
        self.lab.clock.now += self.chance.choice([0.0, 0.001, 0.01, 0.03])
        self.any_node().step()

    def sync(self) -> None:
        self.any_node().sync()

    def pause(self) -> None:
        self.lab.clock.now += self.chance.uniform(0.1, 1.5)

    def propose(self) -> None:
        leading = [node for node in self.lab.nodes.values() if node.running and node.machine.leading]
        for node in leading:
            if self.lab.claimed(node) and not node.state.members and not self.unapplied_members(node):
                # As the controller does: from now on the log says who votes.
                self.lab.propose_members(node, node.machine.members)
                node.step()
            self.proposals += 1
            self.lab.propose(node, b"%d" % self.proposals)

    def crash(self) -> None:
        # Usually a few, sometimes all of them at once.
        crashing = list(self.lab.nodes.values()) if self.chance.random() < 0.1 else [self.any_node()]
        for node in crashing:
            if node.running:
                block = len(node.block or b"")
                node.crash(written=self.chance.choice([0, block, self.chance.randint(0, block)]))

    def restart(self) -> None:
        node = self.any_node()
        if not node.running:
            node.start()

    def cut(self) -> None:
        ids = list(self.lab.nodes)
        for _ in range(self.chance.randint(1, len(ids))):
            self.lab.cut.add((self.chance.choice(ids), self.chance.choice(ids)))

    def heal(self) -> None:
        self.lab.cut.clear()

    def snapshot(self) -> None:
        self.any_node().write_own_snapshot()

    def trim(self) -> None:
        self.any_node().trim_to_own_snapshot()

    def transfer(self) -> None:
        leader = self.lab.leader
        if leader is not None:
            leader.machine.transfer_to(self.any_node().id)

    def change_members(self) -> None:
        """One voter more or less, by the rule of the controller: the entry before it is committed, in this term."""
        lab = self.lab
        leading = [
            node
            for node in lab.nodes.values()
            if node.running
            and node.block is None
            and lab.claimed(node)
            and node.machine.members == (node.state.members or node.machine.members)
            and not self.unapplied_members(node)
        ]
        for node in leading:
            members = node.machine.members
            if node.id not in {raft_id(m) for m in members}:
                continue
            running = [m for m in members if lab.nodes[raft_id(m)].running]
            gone = [m for m in members if not lab.nodes[raft_id(m)].directory.exists()]
            if gone:
                lab.propose_members(node, [m for m in members if m != gone[0]])
            elif len(members) > 3 and len(running) == len(members) and self.chance.random() < 0.6:
                removed = self.chance.choice([m for m in members if raft_id(m) != node.id])
                lab.propose_members(node, [m for m in members if m != removed])
            elif len(members) < 6 and len(lab.nodes) < 12:
                name = next(f"q{n}" for n in range(1, 10) if f"q{n}" not in {m.name for m in members})
                lab.propose_members(node, [*members, self.new_node(name).member])
            node.step()

    def unapplied_members(self, node: LabNode) -> bool:
        return any(e.command[:1] == MEMBERS and e.index > node.state.version for e in node.journal.entries)

    def new_node(self, name: str) -> LabNode:
        self.next_directory += 1
        return self.lab.add(Member(name, f"new{self.next_directory}", f"{name}.test:1"))

    def wipe(self) -> None:
        """A voter loses its disk for good, if the others can do without: another one has to be added."""
        lab = self.lab
        leader = lab.leader
        if leader is None or any(not lab.nodes[raft_id(m)].running for m in leader.machine.members):
            return
        if leader.machine.members != leader.state.members or len(leader.machine.members) < 4:
            return
        node = self.chance.choice([lab.nodes[raft_id(m)] for m in leader.machine.members])
        node.crash()
        for file in node.directory.iterdir():
            file.unlink()
        node.directory.rmdir()
        node.start = lambda: None  # type: ignore[method-assign]


def storm(folder: Path, seed: int, nodes: int, events: int = EVENTS) -> RaftLab:
    print(f"seed {seed}, {nodes} nodes")  # noqa: T201 - shown when the test fails
    names = [f"q{n}" for n in range(1, nodes + 1)]
    with RaftLab(folder, names, seed=seed, history_entries=seed % 5 * 3) as lab:
        Storm(lab).run(events)
    return lab


@pytest.mark.requirement("R18")
@pytest.mark.parametrize("seed", range(SEED, SEED + 10 * EFFORT))
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_raft_when_everything_fails_then_keeps_its_promises(tmp_path: Path, seed: int, nodes: int) -> None:
    lab = storm(tmp_path, seed, nodes)
    assert sum(index is not None for index in lab.answers.values()) > 0


# Without the guards the lab finds what the library does


def _count_every_vote(self: RaftMachine, sender: str, term: int) -> None:
    if term == self.term:
        self._hand_over(sender, {"type": "response_vote", "term": term})


def _clear_the_journal(self: Journal, placeholder: Entry) -> None:
    if not self.entries or self.first_index != placeholder.index:
        self.entries = [placeholder]


def _send_before_the_sync(self: LabNode) -> None:
    _STEP(self)
    if self.block is not None:
        self._send(self._held)
        self._held = []


_STEP = LabNode.step
UNGUARDED = {
    "row 1, appends are not reduced": (raft_machine, "what_is_new", lambda append, **_: append),
    "row 2, votes and acknowledgements leave before the sync": (LabNode, "step", _send_before_the_sync),
    "row 3, the journal is cleared when it is ahead of the snapshot": (Journal, "_fit_to", _clear_the_journal),
    "row 19, votes are counted and not voters": (RaftMachine, "_receive_vote", _count_every_vote),
}


@pytest.mark.parametrize("name", UNGUARDED)
def test_raft_when_a_guard_is_taken_away_then_the_lab_finds_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(*UNGUARDED[name])
    for seed in range(200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            storm(folder, seed, 5 if seed % 2 else 3)
        except SafetyBroken:
            return
        except SafetyViolated:
            return  # the node itself noticed
    pytest.fail("the lab is blind")
