"""The table of errors: frozen numbers, and every error the same after pickle, protobuf and a real call."""

import asyncio
import copy
import dataclasses
import os
import pickle
import re
from pathlib import Path

import grpc
import grpc.aio
import pytest

from lograft.contract.errors import (
    BY_NUMBER,
    CorruptBatch,
    DiskFull,
    InvalidRequest,
    LogError,
    NotCoordinator,
    NotLeader,
    OffsetOutOfRange,
    Outcome,
    OutOfOrderSequence,
    UnknownServerError,
    from_detail,
    to_detail,
)
from lograft.v1 import errors_pb2

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "errors.md"
TRAILER = "lograft-error-bin"

# Frozen: a number keeps its name for good. A new error is a new line at the end; no line ever goes or changes.
FROZEN = {
    1: "UnknownTopicOrPartition",
    2: "NotLeader",
    3: "FencedEpoch",
    4: "NoLeader",
    5: "OffsetOutOfRange",
    6: "InvalidRequest",
    7: "CorruptBatch",
    8: "RecordTooLarge",
    9: "NotEnoughReplicas",
    10: "ReplicationTimeout",
    11: "Throttled",
    12: "DiskFull",
    13: "OutOfOrderSequence",
    14: "ProducerFenced",
    15: "RebalanceInProgress",
    16: "StaleGeneration",
    17: "UnknownMember",
    18: "NotCoordinator",
    19: "TopicExists",
    20: "QuorumUnavailable",
    21: "MetadataOutcomeUnknown",
    22: "ShuttingDown",
    23: "StorageCorrupted",
    24: "UnsupportedVersion",
    25: "Internal",
    26: "StorageFailed",
    27: "DirectoryLocked",
    28: "WrongDirectory",
    29: "DirectoryUnusable",
    30: "NotController",
    31: "BrokerIdInUse",
    32: "UnknownBroker",
    33: "InvalidTopicName",
    34: "InvalidPartitionCount",
    35: "InvalidReplicationFactor",
    36: "InvalidAssignment",
    37: "UnknownConfig",
    38: "InvalidConfigValue",
    39: "NoEligibleLeader",
    40: "MoveRefused",
    41: "BrokerInUse",
    42: "MembershipRefused",
    43: "WrongCluster",
    44: "UnknownName",
}


def all_classes(root: type[LogError] = LogError) -> list[type[LogError]]:
    """Every error class below ``root``, however deep, of the package itself."""
    below = [cls for cls in root.__subclasses__() if cls.__module__.startswith("lograft.")]
    return below + [cls for child in below for cls in all_classes(child)]


def sample(error: type[LogError], *, optional: bool = True) -> LogError:
    """An error with something in every field; without ``optional``, None where that is allowed."""
    facts: dict[str, str | int | None] = {}
    for number, field in enumerate(dataclasses.fields(error), 1):  # type: ignore[arg-type]
        if field.type is str:
            facts[field.name] = f"some {field.name} é {{x}}"
        elif field.type is int:
            facts[field.name] = 100 + number
        elif field.type == str | None:
            facts[field.name] = f"some {field.name}" if optional else None
        else:
            assert field.type == int | None, field
            facts[field.name] = number if optional else None
    return error(**facts)


CLASSES = all_classes()
SAMPLES = [sample(error, optional=optional) for error in CLASSES for optional in (True, False)]


def same(left: LogError, right: LogError) -> bool:
    return type(left) is type(right) and left.facts() == right.facts() and str(left) == str(right)


# --- the table


@pytest.mark.requirement("R32")
def test_numbers_of_all_errors_are_the_frozen_ones() -> None:
    assert {error.number: error.__name__ for error in CLASSES if error is not UnknownServerError} == FROZEN
    assert {number: error.__name__ for number, error in BY_NUMBER.items()} == FROZEN


def test_classes_below_the_base_are_all_direct_and_have_one_number_each() -> None:
    assert len(CLASSES) == len(FROZEN) + 1
    assert all(error.__bases__ == (LogError,) for error in CLASSES)


@pytest.mark.parametrize("error", CLASSES)
def test_row_of_an_error_is_complete(error: type[LogError]) -> None:
    assert error.__doc__
    assert error.__doc__.endswith(".")
    assert grpc.StatusCode[error.status] is not grpc.StatusCode.OK
    assert isinstance(error.retriable, bool)
    assert isinstance(error.refresh_metadata, bool)
    assert isinstance(error.outcome, Outcome)
    assert dataclasses.fields(error)  # type: ignore[arg-type]


def test_outcome_is_unknown_for_exactly_the_errors_that_may_have_applied_something() -> None:
    unknown = {error.__name__ for error in CLASSES if error.outcome is Outcome.UNKNOWN}
    assert unknown == {
        "ReplicationTimeout",
        "MetadataOutcomeUnknown",
        "Internal",
        "StorageFailed",
        "UnknownServerError",
    }


@pytest.mark.parametrize("error", SAMPLES, ids=repr)
def test_text_of_an_error_is_plain_words_with_its_facts(error: LogError) -> None:
    text = str(error)
    assert "\n" not in text
    assert "None" not in text
    assert type(error).__name__ not in text
    assert text[0] not in "<{('"
    for value in error.facts().values():
        assert value is None or str(value) in text


def test_text_of_an_error_with_a_hint_says_where_to_go_and_without_one_what_to_do() -> None:
    assert str(NotLeader("t", 3, 2, 9)) == "not the leader of t-3 in epoch 9 (try broker 2)"
    assert str(NotLeader("t", 3)) == "not the leader of t-3 (ask for the metadata again)"
    assert str(NotLeader("t", 3, 0, 0)) == "not the leader of t-3 in epoch 0 (try broker 0)"
    assert str(NotCoordinator("g", 2)) == "not the coordinator of group g (try broker 2)"
    assert str(NotCoordinator("g")) == "not the coordinator of group g (ask for the metadata again)"


def table() -> str:
    """The table of docs/formats/errors.md, from the code."""
    lines = [
        "| number | error | gRPC status | retry | refresh metadata | outcome | fields | meaning |",
        "| ---: | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for error in [*map(BY_NUMBER.__getitem__, sorted(BY_NUMBER)), UnknownServerError]:
        assert error.__doc__
        cells = [
            str(error.number) if error.number else "any other",
            f"`{error.__name__}`",
            error.status if error.number else "as sent",
            "yes" if error.retriable else "no",
            "yes" if error.refresh_metadata else "no",
            "not applied" if error.outcome is Outcome.NOT_APPLIED else "**unknown**",
            ", ".join(f"`{field.name}`" for field in dataclasses.fields(error)),  # type: ignore[arg-type]
            " ".join(error.__doc__.split()).replace("``", "`"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_document_of_the_errors_holds_the_table_of_the_code() -> None:
    text = DOCUMENT.read_text()
    begin, end = "<!-- table: begin -->\n", "\n<!-- table: end -->"
    head, rest = text.split(begin)
    written, tail = rest.split(end)
    if os.environ.get("LOGRAFT_REWRITE_GOLDEN") == "1":
        written = table()
        DOCUMENT.write_text(head + begin + written + end + tail)
    assert written == table(), "run this test with LOGRAFT_REWRITE_GOLDEN=1 and look at the difference"


def test_document_of_the_errors_names_no_other_error() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", DOCUMENT.read_text()))
    assert named - {error.__name__ for error in CLASSES} <= {"ErrorDetail", "LogError", "None"}


# --- there and back


@pytest.mark.requirement("R31")
@pytest.mark.parametrize("error", SAMPLES, ids=repr)
def test_error_pickled_and_copied_is_the_same(error: LogError) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(error, protocol)), error)
    assert same(copy.copy(error), error)
    assert same(copy.deepcopy(error), error)


def test_error_made_by_keyword_and_by_position_pickles_alike() -> None:
    by_keyword = CorruptBatch(problem="p", position=7)
    by_position = CorruptBatch("p", "the request", 7)
    assert same(pickle.loads(pickle.dumps(by_keyword)), by_position)


@pytest.mark.parametrize("error", SAMPLES, ids=repr)
def test_error_sent_as_detail_and_rebuilt_is_the_same(error: LogError) -> None:
    detail = errors_pb2.ErrorDetail.FromString(to_detail(error).SerializeToString())
    assert same(from_detail(detail), error)
    assert detail.retriable == error.retriable
    assert detail.refresh_metadata == error.refresh_metadata
    assert detail.outcome == error.outcome.value != errors_pb2.OUTCOME_UNSPECIFIED


def test_error_with_a_number_beyond_64_bits_is_sent_all_the_same() -> None:
    for error in (OffsetOutOfRange("t-0", (1 << 64) - 1, 0, 5), OutOfOrderSequence(1 << 63, -(1 << 63) - 1, 0)):
        rebuilt = from_detail(to_detail(error))
        assert type(rebuilt) is type(error)
        assert str(rebuilt) == str(error)


def test_error_with_a_file_name_that_is_not_utf8_is_sent_all_the_same() -> None:
    path = os.fsdecode(b"/data/\xff-0")
    rebuilt = from_detail(to_detail(DiskFull(path)))
    assert isinstance(rebuilt, DiskFull)
    assert rebuilt.path == "/data/\\udcff-0"
    assert "/data/\\udcff-0" in str(rebuilt)


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("number", [0, 30, 77, (1 << 32) - 1])
def test_error_with_a_number_of_a_newer_server_is_unknown_and_says_what_was_sent(number: int) -> None:
    detail = errors_pb2.ErrorDetail(number=number, message="something new", outcome=errors_pb2.OUTCOME_NOT_APPLIED)
    error = from_detail(detail)
    assert isinstance(error, UnknownServerError)
    assert (error.unknown_number, error.outcome, error.retriable) == (number, Outcome.UNKNOWN, False)
    assert str(error) == f"error {number}: something new"
    # Passed on, it does not change.
    passed_on = to_detail(error)
    assert (passed_on.number, passed_on.message) == (number, "something new")
    assert same(from_detail(passed_on), error)


@pytest.mark.requirement("R32")
def test_error_with_a_fact_of_a_newer_server_is_rebuilt_without_it() -> None:
    detail = to_detail(InvalidRequest("p"))
    detail.fields.add(name="more", text="x")
    assert same(from_detail(detail), InvalidRequest("p"))


@pytest.mark.requirement("R32")
def test_error_without_a_fact_that_an_older_server_does_not_send_is_rebuilt_if_there_is_a_default() -> None:
    detail = to_detail(NotLeader("t", 1, 2, 3))
    del detail.fields[2:]
    assert same(from_detail(detail), NotLeader("t", 1))
    del detail.fields[:]
    missing = from_detail(detail)
    assert isinstance(missing, UnknownServerError)
    assert (missing.unknown_number, missing.message) == (2, "not the leader of t-1 in epoch 3 (try broker 2)")


# --- a real call


async def _called(errors: list[LogError]) -> list[grpc.aio.AioRpcError]:
    """What a client sees of each error when a server aborts with it, over a real connection."""

    async def fail(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        error = errors[int(request)]
        trailer = ((TRAILER, to_detail(error).SerializeToString()),)
        await context.abort(grpc.StatusCode[error.status], str(error), trailer)
        return b""

    server = grpc.aio.server()
    handlers = {"Fail": grpc.unary_unary_rpc_method_handler(fail)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lograft.test.Errors", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    seen = []
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/lograft.test.Errors/Fail")
            for index in range(len(errors)):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(str(index).encode(), timeout=10)
                seen.append(caught.value)
    finally:
        await server.stop(None)
    return seen


@pytest.mark.requirement("R28")
def test_errors_sent_in_the_trailer_of_a_real_call_are_the_same() -> None:
    newer = UnknownServerError(4242, "something new")
    errors = [*SAMPLES, newer]
    for sent, seen in zip(errors, asyncio.run(_called(errors)), strict=True):
        assert seen.code() is grpc.StatusCode[sent.status]
        assert seen.details() == str(sent)
        trailers = dict(seen.trailing_metadata())
        rebuilt = from_detail(errors_pb2.ErrorDetail.FromString(trailers[TRAILER]))
        assert same(rebuilt, sent)
        assert rebuilt.outcome is sent.outcome
