"""One thread that does the blocking disk work of a quorum node, one job at a time."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class SyncThread:
    """Runs jobs in order and reports each to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[
            tuple[Callable[[], object], Callable[[object, BaseException | None], None]] | None
        ]
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lograft-quorum-disk", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], _T], done: Callable[[_T, BaseException | None], None]) -> None:
        """Run ``job``; ``done`` is called in the event loop with its result or its error."""
        self._jobs.put((job, done))  # type: ignore[arg-type]

    async def run(self, job: Callable[[], _T]) -> _T:
        """Run ``job`` and wait for it."""
        future: asyncio.Future[_T] = self._loop.create_future()

        def done(result: _T, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(job, done)
        return await future

    def close(self) -> None:
        """Finish what was submitted, then end."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                result, error = job(), None
            except BaseException as caught:  # told to whoever waits for the job
                result, error = None, caught
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
