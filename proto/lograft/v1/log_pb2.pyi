from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODEC_UNSPECIFIED: _ClassVar[Codec]
    CODEC_NONE: _ClassVar[Codec]
    CODEC_ZSTD: _ClassVar[Codec]
    CODEC_LZ4: _ClassVar[Codec]
    CODEC_GZIP: _ClassVar[Codec]
CODEC_UNSPECIFIED: Codec
CODEC_NONE: Codec
CODEC_ZSTD: Codec
CODEC_LZ4: Codec
CODEC_GZIP: Codec

class Segment(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[RecordBatch]
    def __init__(self, batches: _Optional[_Iterable[_Union[RecordBatch, _Mapping]]] = ...) -> None: ...

class RecordBatch(_message.Message):
    __slots__ = ("header_crc32c", "base_offset", "last_offset_delta", "leader_epoch", "append_timestamp_ms", "record_count", "base_timestamp_ms", "max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence", "codec", "flags", "delete_horizon_ms", "uncompressed_bytes", "records_crc32c", "records")
    HEADER_CRC32C_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_DELTA_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BASE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    DELETE_HORIZON_MS_FIELD_NUMBER: _ClassVar[int]
    UNCOMPRESSED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_CRC32C_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    header_crc32c: int
    base_offset: int
    last_offset_delta: int
    leader_epoch: int
    append_timestamp_ms: int
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    codec: Codec
    flags: int
    delete_horizon_ms: int
    uncompressed_bytes: int
    records_crc32c: int
    records: bytes
    def __init__(self, header_crc32c: _Optional[int] = ..., base_offset: _Optional[int] = ..., last_offset_delta: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., append_timestamp_ms: _Optional[int] = ..., record_count: _Optional[int] = ..., base_timestamp_ms: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ..., codec: _Optional[_Union[Codec, str]] = ..., flags: _Optional[int] = ..., delete_horizon_ms: _Optional[int] = ..., uncompressed_bytes: _Optional[int] = ..., records_crc32c: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("values", "keys", "timestamp_deltas", "offset_deltas", "null_values", "null_keys", "headers")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_DELTAS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_DELTAS_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUES_FIELD_NUMBER: _ClassVar[int]
    NULL_KEYS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    timestamp_deltas: _containers.RepeatedScalarFieldContainer[int]
    offset_deltas: _containers.RepeatedScalarFieldContainer[int]
    null_values: _containers.RepeatedScalarFieldContainer[int]
    null_keys: _containers.RepeatedScalarFieldContainer[int]
    headers: _containers.RepeatedCompositeFieldContainer[RecordHeader]
    def __init__(self, values: _Optional[_Iterable[bytes]] = ..., keys: _Optional[_Iterable[bytes]] = ..., timestamp_deltas: _Optional[_Iterable[int]] = ..., offset_deltas: _Optional[_Iterable[int]] = ..., null_values: _Optional[_Iterable[int]] = ..., null_keys: _Optional[_Iterable[int]] = ..., headers: _Optional[_Iterable[_Union[RecordHeader, _Mapping]]] = ...) -> None: ...

class RecordHeader(_message.Message):
    __slots__ = ("record_index", "key", "value")
    RECORD_INDEX_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    record_index: int
    key: str
    value: bytes
    def __init__(self, record_index: _Optional[int] = ..., key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
