from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_NOT_APPLIED: _ClassVar[Outcome]
    OUTCOME_UNKNOWN: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_NOT_APPLIED: Outcome
OUTCOME_UNKNOWN: Outcome

class ErrorDetail(_message.Message):
    __slots__ = ("number", "message", "retriable", "refresh_metadata", "outcome", "fields")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    REFRESH_METADATA_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    message: str
    retriable: bool
    refresh_metadata: bool
    outcome: Outcome
    fields: _containers.RepeatedCompositeFieldContainer[ErrorField]
    def __init__(self, number: _Optional[int] = ..., message: _Optional[str] = ..., retriable: bool = ..., refresh_metadata: bool = ..., outcome: _Optional[_Union[Outcome, str]] = ..., fields: _Optional[_Iterable[_Union[ErrorField, _Mapping]]] = ...) -> None: ...

class ErrorField(_message.Message):
    __slots__ = ("name", "number", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    text: str
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...
