"""Time, chance and the network: whatever happens in a simulation is a call in this queue.

Each concern has its own dice, so that another draw of the network leaves the faults and the load as they were.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

TRACE_LENGTH = 40


class World:
    """The queue of what will happen, and the clock. Nothing here reads a real one."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ms = 1_000
        self.network = Random(f"network-{seed}")  # noqa: S311 - repeatable on purpose
        self.load = Random(f"load-{seed}")  # noqa: S311
        self.faults = Random(f"faults-{seed}")  # noqa: S311
        self.ids = Random(f"ids-{seed}")  # noqa: S311
        self.trace: deque[str] = deque(maxlen=TRACE_LENGTH)
        # No more loss and no more long delays: what began may end.
        self.calm = False
        self.loss = self.network.choice((0.0, 0.02, 0.1))
        self.duplicates = self.network.choice((0.0, 0.05))
        self.slow = self.network.choice((0.0, 0.02, 0.1))
        # Directed links that carry nothing.
        self.cut: set[tuple[str, str]] = set()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call it after so many milliseconds; calls of one moment in the order they were asked for."""
        self._number += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._number, call))

    def step(self) -> None:
        """The next thing happens."""
        self.now_ms, _, call = heapq.heappop(self._queue)
        call()

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """A message: it may be lost, late, early, or come twice."""
        copies = 1 + (not self.calm and self.network.random() < self.duplicates)
        for _ in range(copies):
            if not self.linked(source, target) or (not self.calm and self.network.random() < self.loss):
                continue
            late = not self.calm and self.network.random() < self.slow
            self.at(self.network.randint(50, 900) if late else self.network.randint(1, 8), deliver)

    def linked(self, source: str, target: str) -> bool:
        """Whether messages pass from one to the other."""
        return (source, target) not in self.cut

    def fresh_id(self) -> str:
        """An id that was never given out."""
        return f"{self.ids.getrandbits(128):032x}"

    def say(self, text: str) -> None:
        """Write the history that a failure is shown with."""
        self.trace.append(f"{self.now_ms:>7} {text}")


class Timer(asyncio.TimerHandle):
    """A call that can still be called off."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as the controller needs, on the simulated clock. It can be stopped like a process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.paused_until_ms = 0
        self.dead = False

    def time(self) -> float:
        """Seconds."""
        return self._world.now_ms / 1000

    def get_debug(self) -> bool:
        """Futures ask."""
        return False

    def create_future(self) -> "asyncio.Future[Any]":
        """A future whose callbacks run on the simulated clock."""
        return asyncio.Future(loop=self)

    def call_soon(  # type: ignore[override] # no Handle: nobody calls these off
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> None:
        """Next, at the same moment."""
        del context
        self.run_later(0, lambda: callback(*args))

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer:
        """After so many seconds."""
        timer = Timer(self.time() + delay, callback, args, self, context)
        self.run_later(max(round(delay * 1000), 0), lambda: None if timer.cancelled() else callback(*args))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Handles tell their loop; the queue looks for itself."""

    def run_later(self, delay_ms: int, call: Callable[[], object]) -> None:
        """Run it in this process: not while that stands still, never after its death."""

        def run() -> None:
            if self.dead:
                return
            if self._world.now_ms < self.paused_until_ms:
                self._world.at(self.paused_until_ms - self._world.now_ms, run)
            else:
                call()

        self._world.at(delay_ms, run)
