"""Errors between processes: our own in a binary trailer of the failed call; a bug as INTERNAL with an incident id."""

import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from lograft.contract.errors import Internal, LogError, from_detail, to_detail
from lograft.v1 import errors_pb2

_logger = logging.getLogger(__name__)
TRAILER = "lograft-error-bin"
# All trailers of a call should stay below 8 kB.
_MAX_TEXT = 1_000


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns whatever a handler raises into a status with our error in it."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith("/lograft."):
            return handler
        if handler.response_streaming:
            inner_stream = handler.stream_stream or handler.unary_stream

            async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
                try:
                    async for response in inner_stream(request, context):
                        yield response
                except Exception as error:  # everything becomes a status
                    await _abort(context, error)

            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            return make(stream, handler.request_deserializer, handler.response_serializer)
        inner = handler.unary_unary

        async def unary(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                return await inner(request, context)
            except Exception as error:  # everything becomes a status
                return await _abort(context, error)

        return grpc.unary_unary_rpc_method_handler(unary, handler.request_deserializer, handler.response_serializer)


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, LogError):
        incident = uuid.uuid4().hex[:12]
        _logger.error("incident %s", incident, exc_info=error)
        error = Internal(incident)
    detail = to_detail(error)
    detail.message = detail.message[:_MAX_TEXT]
    await context.abort(
        getattr(grpc.StatusCode, error.status), detail.message, ((TRAILER, detail.SerializeToString()),)
    )


def error_of(call_error: grpc.aio.AioRpcError) -> LogError | None:
    """Our error in a failed call; None if the call failed without one, as when the connection broke."""
    for key, value in call_error.trailing_metadata() or ():
        if key == TRAILER and isinstance(value, bytes):
            return from_detail(errors_pb2.ErrorDetail.FromString(value))
    return None
