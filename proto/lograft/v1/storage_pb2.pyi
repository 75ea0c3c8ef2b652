from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CloseState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLOSE_STATE_UNSPECIFIED: _ClassVar[CloseState]
    CLOSE_STATE_OPEN: _ClassVar[CloseState]
    CLOSE_STATE_CLEAN: _ClassVar[CloseState]
    CLOSE_STATE_SYNC_FAILED: _ClassVar[CloseState]
CLOSE_STATE_UNSPECIFIED: CloseState
CLOSE_STATE_OPEN: CloseState
CLOSE_STATE_CLEAN: CloseState
CLOSE_STATE_SYNC_FAILED: CloseState

class DirectoryMeta(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "directory_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    directory_id: str
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., directory_id: _Optional[str] = ...) -> None: ...

class PartitionMeta(_message.Message):
    __slots__ = ("topic_id", "topic", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    topic: str
    partition: int
    def __init__(self, topic_id: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class PartitionCheckpoint(_message.Message):
    __slots__ = ("flushed_end_offset", "flushed_segment_base", "flushed_position", "log_start_offset", "high_watermark", "compacted_end_offset", "epochs", "close_state", "producers", "cut_bytes", "trusted_end_offset")
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_SEGMENT_BASE_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_POSITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_STATE_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    flushed_end_offset: int
    flushed_segment_base: int
    flushed_position: int
    log_start_offset: int
    high_watermark: int
    compacted_end_offset: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    close_state: CloseState
    producers: _containers.RepeatedCompositeFieldContainer[ProducerEntry]
    cut_bytes: int
    trusted_end_offset: int
    def __init__(self, flushed_end_offset: _Optional[int] = ..., flushed_segment_base: _Optional[int] = ..., flushed_position: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., compacted_end_offset: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., close_state: _Optional[_Union[CloseState, str]] = ..., producers: _Optional[_Iterable[_Union[ProducerEntry, _Mapping]]] = ..., cut_bytes: _Optional[int] = ..., trusted_end_offset: _Optional[int] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class ProducerSnapshot(_message.Message):
    __slots__ = ("offset", "producers")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    producers: _containers.RepeatedCompositeFieldContainer[ProducerEntry]
    def __init__(self, offset: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[ProducerEntry, _Mapping]]] = ...) -> None: ...

class ProducerEntry(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "batches")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    batches: _containers.RepeatedCompositeFieldContainer[ProducerBatch]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[ProducerBatch, _Mapping]]] = ...) -> None: ...

class ProducerBatch(_message.Message):
    __slots__ = ("base_sequence", "last_sequence", "base_offset", "last_offset_delta", "append_timestamp_ms")
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_DELTA_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset_delta: int
    append_timestamp_ms: int
    def __init__(self, base_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., base_offset: _Optional[int] = ..., last_offset_delta: _Optional[int] = ..., append_timestamp_ms: _Optional[int] = ...) -> None: ...
