from lograft.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EntryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENTRY_KIND_UNSPECIFIED: _ClassVar[EntryKind]
    ENTRY_KIND_METADATA: _ClassVar[EntryKind]
    ENTRY_KIND_NO_OP: _ClassVar[EntryKind]
    ENTRY_KIND_MEMBERS: _ClassVar[EntryKind]
ENTRY_KIND_UNSPECIFIED: EntryKind
ENTRY_KIND_METADATA: EntryKind
ENTRY_KIND_NO_OP: EntryKind
ENTRY_KIND_MEMBERS: EntryKind

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("node", "directory_id", "cluster_id", "leader", "term", "commit_index", "applied_index", "last_index", "first_index", "members", "controller", "controller_epoch", "state", "problem", "peers", "feature_level", "journal_bytes", "snapshot_version")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_VERSION_FIELD_NUMBER: _ClassVar[int]
    node: str
    directory_id: str
    cluster_id: str
    leader: str
    term: int
    commit_index: int
    applied_index: int
    last_index: int
    first_index: int
    members: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.QuorumMember]
    controller: bool
    controller_epoch: int
    state: str
    problem: str
    peers: _containers.RepeatedCompositeFieldContainer[PeerProgress]
    feature_level: int
    journal_bytes: int
    snapshot_version: int
    def __init__(self, node: _Optional[str] = ..., directory_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., last_index: _Optional[int] = ..., first_index: _Optional[int] = ..., members: _Optional[_Iterable[_Union[_metadata_pb2.QuorumMember, _Mapping]]] = ..., controller: bool = ..., controller_epoch: _Optional[int] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[PeerProgress, _Mapping]]] = ..., feature_level: _Optional[int] = ..., journal_bytes: _Optional[int] = ..., snapshot_version: _Optional[int] = ...) -> None: ...

class PeerProgress(_message.Message):
    __slots__ = ("name", "match_index", "connected")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    match_index: int
    connected: bool
    def __init__(self, name: _Optional[str] = ..., match_index: _Optional[int] = ..., connected: bool = ...) -> None: ...

class TransferRequest(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...

class TransferResponse(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: str
    def __init__(self, leader: _Optional[str] = ...) -> None: ...

class AddMemberRequest(_message.Message):
    __slots__ = ("name", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class AddMemberResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.QuorumMember]
    def __init__(self, members: _Optional[_Iterable[_Union[_metadata_pb2.QuorumMember, _Mapping]]] = ...) -> None: ...

class RemoveMemberRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveMemberResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.QuorumMember]
    def __init__(self, members: _Optional[_Iterable[_Union[_metadata_pb2.QuorumMember, _Mapping]]] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ("name", "directory_id", "cluster_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    directory_id: str
    cluster_id: str
    def __init__(self, name: _Optional[str] = ..., directory_id: _Optional[str] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class HelloResponse(_message.Message):
    __slots__ = ("name", "directory_id", "cluster_id", "members", "accepted", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    directory_id: str
    cluster_id: str
    members: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.QuorumMember]
    accepted: bool
    reason: str
    def __init__(self, name: _Optional[str] = ..., directory_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., members: _Optional[_Iterable[_Union[_metadata_pb2.QuorumMember, _Mapping]]] = ..., accepted: bool = ..., reason: _Optional[str] = ...) -> None: ...

class ExchangeRequest(_message.Message):
    __slots__ = ("sender", "receiver", "term", "append_entries", "append_reply", "request_vote", "grant_vote", "snapshot_chunk", "timeout_now", "pre_vote", "grant_pre_vote")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPEND_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    APPEND_REPLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_VOTE_FIELD_NUMBER: _ClassVar[int]
    GRANT_VOTE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_CHUNK_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    GRANT_PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    sender: str
    receiver: str
    term: int
    append_entries: AppendEntries
    append_reply: AppendReply
    request_vote: RequestVote
    grant_vote: GrantVote
    snapshot_chunk: SnapshotChunk
    timeout_now: TimeoutNow
    pre_vote: PreVote
    grant_pre_vote: GrantPreVote
    def __init__(self, sender: _Optional[str] = ..., receiver: _Optional[str] = ..., term: _Optional[int] = ..., append_entries: _Optional[_Union[AppendEntries, _Mapping]] = ..., append_reply: _Optional[_Union[AppendReply, _Mapping]] = ..., request_vote: _Optional[_Union[RequestVote, _Mapping]] = ..., grant_vote: _Optional[_Union[GrantVote, _Mapping]] = ..., snapshot_chunk: _Optional[_Union[SnapshotChunk, _Mapping]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping]] = ..., pre_vote: _Optional[_Union[PreVote, _Mapping]] = ..., grant_pre_vote: _Optional[_Union[GrantPreVote, _Mapping]] = ...) -> None: ...

class ExchangeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AppendEntries(_message.Message):
    __slots__ = ("previous_index", "previous_term", "commit_index", "entries")
    PREVIOUS_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    previous_index: int
    previous_term: int
    commit_index: int
    entries: _containers.RepeatedCompositeFieldContainer[LogEntry]
    def __init__(self, previous_index: _Optional[int] = ..., previous_term: _Optional[int] = ..., commit_index: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[LogEntry, _Mapping]]] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("index", "term", "kind", "payload")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    kind: EntryKind
    payload: bytes
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ..., kind: _Optional[_Union[EntryKind, str]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("next_index", "reset", "success")
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    next_index: int
    reset: bool
    success: bool
    def __init__(self, next_index: _Optional[int] = ..., reset: bool = ..., success: bool = ...) -> None: ...

class RequestVote(_message.Message):
    __slots__ = ("last_log_index", "last_log_term")
    LAST_LOG_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_TERM_FIELD_NUMBER: _ClassVar[int]
    last_log_index: int
    last_log_term: int
    def __init__(self, last_log_index: _Optional[int] = ..., last_log_term: _Optional[int] = ...) -> None: ...

class GrantVote(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("data", "first", "last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    first: bool
    last: bool
    def __init__(self, data: _Optional[bytes] = ..., first: bool = ..., last: bool = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PreVote(_message.Message):
    __slots__ = ("next_term", "last_log_index", "last_log_term")
    NEXT_TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_TERM_FIELD_NUMBER: _ClassVar[int]
    next_term: int
    last_log_index: int
    last_log_term: int
    def __init__(self, next_term: _Optional[int] = ..., last_log_index: _Optional[int] = ..., last_log_term: _Optional[int] = ...) -> None: ...

class GrantPreVote(_message.Message):
    __slots__ = ("next_term",)
    NEXT_TERM_FIELD_NUMBER: _ClassVar[int]
    next_term: int
    def __init__(self, next_term: _Optional[int] = ...) -> None: ...

class JournalBlock(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[JournalRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[JournalRecord, _Mapping]]] = ...) -> None: ...

class JournalRecord(_message.Message):
    __slots__ = ("append", "truncate_from", "hard_state")
    APPEND_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FROM_FIELD_NUMBER: _ClassVar[int]
    HARD_STATE_FIELD_NUMBER: _ClassVar[int]
    append: LogEntry
    truncate_from: int
    hard_state: HardState
    def __init__(self, append: _Optional[_Union[LogEntry, _Mapping]] = ..., truncate_from: _Optional[int] = ..., hard_state: _Optional[_Union[HardState, _Mapping]] = ...) -> None: ...

class HardState(_message.Message):
    __slots__ = ("term", "voted_for")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VOTED_FOR_FIELD_NUMBER: _ClassVar[int]
    term: int
    voted_for: str
    def __init__(self, term: _Optional[int] = ..., voted_for: _Optional[str] = ...) -> None: ...

class NodeMeta(_message.Message):
    __slots__ = ("name", "directory_id", "first_members")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    directory_id: str
    first_members: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.QuorumMember]
    def __init__(self, name: _Optional[str] = ..., directory_id: _Optional[str] = ..., first_members: _Optional[_Iterable[_Union[_metadata_pb2.QuorumMember, _Mapping]]] = ...) -> None: ...
