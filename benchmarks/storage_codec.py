"""Python lists to bytes and back: columns against one protobuf message per record.

The rows compare like with like: a list of values in, a list of values out. The detail adds what a Kafka-like record
costs beyond that: the offset in each message, keys and times in both forms, and reading every field.
"""

import os
import resource
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.harness import Bar, Fact, Row, Samples, Tick, alternate, rounded, seconds
from benchmarks.lab import Lab
from lograft.contract.records import decode_batch, encode_batch

_VALUE_BYTES = 100
_BATCH_RECORDS = (1_000, 10_000)
_NOW_MS = 1_750_000_000_000
_SIDES = 10


def _record_set_type() -> Any:
    """``RecordSet { repeated Record records }``, with records as Kafka has them."""
    file = descriptor_pb2.FileDescriptorProto(name="benchmarks/record_set.proto", package="benchmarks", syntax="proto3")
    record = file.message_type.add(name="Record")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = (
        ("key", kinds.TYPE_BYTES),
        ("value", kinds.TYPE_BYTES),
        ("timestamp_delta", kinds.TYPE_INT64),
        ("offset_delta", kinds.TYPE_UINT32),
    )
    for number, (name, kind) in enumerate(fields, 1):
        record.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    record_set = file.message_type.add(name="RecordSet")
    record_set.field.add(
        name="records",
        number=1,
        type=kinds.TYPE_MESSAGE,
        type_name=".benchmarks.Record",
        label=kinds.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("benchmarks.RecordSet"))


_RecordSet = _record_set_type()


# Assigning fields is the fastest way to fill a message: `add(value=...)` takes a quarter longer, a list of ready
# messages for the constructor three times as long.
def _encode_values(values: Sequence[bytes]) -> bytes:
    record_set = _RecordSet()
    add = record_set.records.add
    for value in values:
        add().value = value
    data: bytes = record_set.SerializeToString()
    return data


def _encode_with_offsets(values: Sequence[bytes]) -> bytes:
    record_set = _RecordSet()
    add = record_set.records.add
    for index, value in enumerate(values):
        record = add()
        record.value = value
        record.offset_delta = index
    data: bytes = record_set.SerializeToString()
    return data


def _encode_all(values: Sequence[bytes], keys: Sequence[bytes], times: Sequence[int]) -> bytes:
    record_set = _RecordSet()
    add = record_set.records.add
    base_ms = times[0]
    for index, value in enumerate(values):
        record = add()
        record.value = value
        record.key = keys[index]
        record.timestamp_delta = times[index] - base_ms
        record.offset_delta = index
    data: bytes = record_set.SerializeToString()
    return data


def _decode_values(data: bytes) -> list[bytes]:
    return [record.value for record in _RecordSet.FromString(data).records]


def _decode_all(data: bytes) -> tuple[list[bytes], list[bytes], list[int], list[int]]:
    values, keys, times, offsets = [], [], [], []
    for record in _RecordSet.FromString(data).records:
        values.append(record.value)
        keys.append(record.key)
        times.append(_NOW_MS + record.timestamp_delta)
        offsets.append(record.offset_delta)
    return values, keys, times, offsets


def codec(lab: Lab) -> list[Row]:
    """One row for encoding and one for decoding; values are the worst of both batch sizes and both heaps."""
    cases: dict[str, _Case] = {}
    with lab.reporter.task("encode and decode", 2 * len(_BATCH_RECORDS) * lab.sizes.codec_slices * _SIDES) as tick:
        for count in _BATCH_RECORDS:
            cases[f"{count:,} records"] = _measure(lab, count, tick)
        scattered = _scattered_objects()
        for count in _BATCH_RECORDS:
            cases[f"{count:,} records, used heap"] = _measure(lab, count, tick)
        del scattered
    return [
        _row("encode", cases, Bar(">=", 4.0), ("offset deltas", "keys and times")),
        _row("decode", cases, Bar(">=", 3.0), ("full read", "keys and times")),
    ]


class _Case(NamedTuple):
    samples: Samples
    # Per batch and side: 256 are one arena of Python's that is mapped afresh for each batch.
    page_faults: dict[str, float]


def _scattered_objects() -> list[bytes]:
    """Small objects scattered over 40 MB, as a process has that runs for a while. Keep them while measuring.

    Python returns an arena of 1 MB to the system when its last object is gone. Depending on what else lives on the
    heap, a batch of 10,000 records maps one afresh each time (both sides then pay about 50 ns more per record, which
    brings them closer together), or never. Objects left in every arena make it never.
    """
    return [bytes(_VALUE_BYTES) for _ in range(300_000)][::500]


def _measure(lab: Lab, count: int, tick: Tick) -> _Case:
    repeat = max(lab.sizes.codec_slice_records // count, 1)
    values = [os.urandom(_VALUE_BYTES) for _ in range(count)]
    keys = [b"key-%08d" % index for index in range(count)]
    times = [_NOW_MS + index // 10 for index in range(count)]
    batch = encode_batch(values, timestamps_ms=_NOW_MS)
    full_batch = encode_batch(values, timestamps_ms=times, keys=keys)
    messages = _encode_values(values)
    full_messages = _encode_all(values, keys, times)
    assert decode_batch(batch).values == _decode_values(messages) == values
    assert decode_batch(full_batch).keys == _decode_all(full_messages)[1] == keys

    work: dict[str, Callable[[], object]] = {
        "encode, columns": lambda: encode_batch(values, timestamps_ms=_NOW_MS),
        "encode, messages": lambda: _encode_values(values),
        "encode, messages, offset deltas": lambda: _encode_with_offsets(values),
        "encode, columns, keys and times": lambda: encode_batch(values, timestamps_ms=times, keys=keys),
        "encode, messages, keys and times": lambda: _encode_all(values, keys, times),
        "decode, columns": lambda: decode_batch(batch),
        "decode, messages": lambda: _decode_values(messages),
        "decode, messages, full read": lambda: _decode_all(messages),
        "decode, columns, keys and times": lambda: decode_batch(full_batch),
        "decode, messages, keys and times": lambda: _decode_all(full_messages),
    }

    page_faults: dict[str, list[float]] = {name: [] for name in work}

    def slice_of(name: str, call: Callable[[], object]) -> Callable[[], float]:
        def repeated() -> None:
            for _ in range(repeat):
                call()

        def run() -> float:
            faults_before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            taken_s = seconds(repeated)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults_before
            page_faults[name].append(faults / repeat)
            return taken_s / (repeat * count)

        return run

    assert len(work) == _SIDES
    sides = {name: slice_of(name, call) for name, call in work.items()}
    alternate(sides, 1)  # warm up
    samples = alternate(sides, lab.sizes.codec_slices, tick)
    return _Case(samples, {name: median(faults) for name, faults in page_faults.items()})


def _row(what: str, cases: dict[str, _Case], bar: Bar, variants: tuple[str, ...]) -> Row:
    detail: dict[str, Fact] = {}
    ratios = []
    for case, (samples, page_faults) in cases.items():
        ratios.append(samples.ratio(f"{what}, messages", f"{what}, columns"))
        detail[f"{case}, ratio"] = rounded(ratios[-1])
        for side in ("columns", "messages"):
            detail[f"{case}, {side}, ns each"] = rounded(samples.median(f"{what}, {side}") * 1e9)
            detail[f"{case}, {side}, page faults per batch"] = rounded(page_faults[f"{what}, {side}"])
        for variant in variants:
            columns = f"{what}, columns, {variant}"
            against = columns if columns in samples.costs else f"{what}, columns"
            detail[f"{case}, ratio, {variant}"] = rounded(samples.ratio(f"{what}, messages, {variant}", against))
    measure = f"{what} batches of 100-byte records, against one protobuf message per record (worst)"
    return Row(measure, min(ratios), "x", bar, detail)
