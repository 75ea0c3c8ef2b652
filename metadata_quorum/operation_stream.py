"""Many operations in flight to one controller over one gRPC stream.

Operations that are submitted while a message is on its way share the next one. Python pays for gRPC by the message, not
by the operation, so this is several times as fast as a call for each.
"""

import asyncio

import grpc
import grpc.aio

from lograft.contract.errors import MetadataOutcomeUnknown, QuorumUnavailable
from lograft.v1 import cluster_pb2, cluster_pb2_grpc

_MAX_PER_MESSAGE = 1_000


class OperationStream:
    """One `Submit` stream. After it broke every answer that is still missing fails, and it takes no more."""

    def __init__(self, channel: grpc.aio.Channel, *, per_message: int = _MAX_PER_MESSAGE) -> None:
        self.channel = channel
        self.broken = False
        self._per_message = per_message
        self._call = cluster_pb2_grpc.ControllerServiceStub(channel).Submit()
        self._number = 0
        self._waiting: list[cluster_pb2.NumberedOperation] = []
        self._answers: dict[int, asyncio.Future[cluster_pb2.OperationResult]] = {}
        self._news = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._write()), loop.create_task(self._read()))

    def submit(self, operation: cluster_pb2.Operation) -> asyncio.Future[cluster_pb2.OperationResult]:
        """Send an operation; its result comes when it is committed or refused."""
        answer: asyncio.Future[cluster_pb2.OperationResult] = asyncio.get_running_loop().create_future()
        if self.broken:
            answer.set_exception(QuorumUnavailable("the stream to the controller is broken"))
            return answer
        self._number += 1
        self._answers[self._number] = answer
        self._waiting.append(cluster_pb2.NumberedOperation(number=self._number, operation=operation))
        self._news.set()
        return answer

    async def _write(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                message = cluster_pb2.SubmitRequest(operations=self._waiting[: self._per_message])
                del self._waiting[: self._per_message]
                try:
                    await self._call.write(message)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return  # the reader learns why

    async def _read(self) -> None:
        # Also when somebody else gives up on the stream: what is on its way may be done all the same.
        problem: Exception = MetadataOutcomeUnknown(0)
        try:
            async for response in self._call:
                for item in response.results:
                    answer = self._answers.pop(item.number, None)
                    if answer is not None and not answer.done():
                        answer.set_result(item.result)
        except grpc.aio.AioRpcError as error:
            problem = error
        finally:
            self.broken = True
            answers, self._answers = self._answers, {}
            for answer in answers.values():
                if not answer.done():
                    answer.set_exception(problem)
                    answer.exception()  # whoever waits gets it; nobody has to

    def abandon(self) -> None:
        """Give up without waiting."""
        self.broken = True
        self._call.cancel()
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End the stream."""
        self.abandon()
        await asyncio.gather(*self._tasks, return_exceptions=True)
