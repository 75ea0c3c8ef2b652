from lograft.v1 import errors_pb2 as _errors_pb2
from lograft.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Election(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ELECTION_UNSPECIFIED: _ClassVar[Election]
    ELECTION_PREFERRED: _ClassVar[Election]
    ELECTION_UNCLEAN: _ClassVar[Election]
ELECTION_UNSPECIFIED: Election
ELECTION_PREFERRED: Election
ELECTION_UNCLEAN: Election

class Operation(_message.Message):
    __slots__ = ("command_id", "create_topic", "delete_topic", "add_partitions", "alter_config", "elect_leader", "move_partition", "cancel_move", "drain_broker", "retire_broker", "register_broker", "stop_broker", "change_in_sync", "offer_leadership", "allocate_producer_ids", "set_user", "delete_user", "create_acl", "delete_acl", "alter_quota", "barrier")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ADD_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADER_FIELD_NUMBER: _ClassVar[int]
    MOVE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    CANCEL_MOVE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_BROKER_FIELD_NUMBER: _ClassVar[int]
    RETIRE_BROKER_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    STOP_BROKER_FIELD_NUMBER: _ClassVar[int]
    CHANGE_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    OFFER_LEADERSHIP_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    SET_USER_FIELD_NUMBER: _ClassVar[int]
    DELETE_USER_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACL_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACL_FIELD_NUMBER: _ClassVar[int]
    ALTER_QUOTA_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    create_topic: CreateTopicOperation
    delete_topic: DeleteTopicOperation
    add_partitions: AddPartitionsOperation
    alter_config: AlterConfigOperation
    elect_leader: ElectLeaderOperation
    move_partition: MovePartitionOperation
    cancel_move: CancelMoveOperation
    drain_broker: DrainBrokerOperation
    retire_broker: RetireBrokerOperation
    register_broker: RegisterBrokerOperation
    stop_broker: StopBrokerOperation
    change_in_sync: ChangeInSyncOperation
    offer_leadership: OfferLeadershipOperation
    allocate_producer_ids: AllocateProducerIdsOperation
    set_user: SetUserOperation
    delete_user: DeleteUserOperation
    create_acl: CreateAclOperation
    delete_acl: DeleteAclOperation
    alter_quota: AlterQuotaOperation
    barrier: BarrierOperation
    def __init__(self, command_id: _Optional[bytes] = ..., create_topic: _Optional[_Union[CreateTopicOperation, _Mapping]] = ..., delete_topic: _Optional[_Union[DeleteTopicOperation, _Mapping]] = ..., add_partitions: _Optional[_Union[AddPartitionsOperation, _Mapping]] = ..., alter_config: _Optional[_Union[AlterConfigOperation, _Mapping]] = ..., elect_leader: _Optional[_Union[ElectLeaderOperation, _Mapping]] = ..., move_partition: _Optional[_Union[MovePartitionOperation, _Mapping]] = ..., cancel_move: _Optional[_Union[CancelMoveOperation, _Mapping]] = ..., drain_broker: _Optional[_Union[DrainBrokerOperation, _Mapping]] = ..., retire_broker: _Optional[_Union[RetireBrokerOperation, _Mapping]] = ..., register_broker: _Optional[_Union[RegisterBrokerOperation, _Mapping]] = ..., stop_broker: _Optional[_Union[StopBrokerOperation, _Mapping]] = ..., change_in_sync: _Optional[_Union[ChangeInSyncOperation, _Mapping]] = ..., offer_leadership: _Optional[_Union[OfferLeadershipOperation, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsOperation, _Mapping]] = ..., set_user: _Optional[_Union[SetUserOperation, _Mapping]] = ..., delete_user: _Optional[_Union[DeleteUserOperation, _Mapping]] = ..., create_acl: _Optional[_Union[CreateAclOperation, _Mapping]] = ..., delete_acl: _Optional[_Union[DeleteAclOperation, _Mapping]] = ..., alter_quota: _Optional[_Union[AlterQuotaOperation, _Mapping]] = ..., barrier: _Optional[_Union[BarrierOperation, _Mapping]] = ...) -> None: ...

class OperationResult(_message.Message):
    __slots__ = ("applied", "error")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    applied: _metadata_pb2.Applied
    error: _errors_pb2.ErrorDetail
    def __init__(self, applied: _Optional[_Union[_metadata_pb2.Applied, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class CreateTopicOperation(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "assignments", "configs", "validate_only")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    assignments: _containers.RepeatedCompositeFieldContainer[ReplicaList]
    configs: _containers.ScalarMap[str, str]
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[ReplicaList, _Mapping]]] = ..., configs: _Optional[_Mapping[str, str]] = ..., validate_only: bool = ...) -> None: ...

class ReplicaList(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteTopicOperation(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class AddPartitionsOperation(_message.Message):
    __slots__ = ("topic", "total", "assignments")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    total: int
    assignments: _containers.RepeatedCompositeFieldContainer[ReplicaList]
    def __init__(self, topic: _Optional[str] = ..., total: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[ReplicaList, _Mapping]]] = ...) -> None: ...

class AlterConfigOperation(_message.Message):
    __slots__ = ("resource", "name", "set", "remove")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    resource: _metadata_pb2.ConfigResource
    name: str
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource: _Optional[_Union[_metadata_pb2.ConfigResource, str]] = ..., name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class ElectLeaderOperation(_message.Message):
    __slots__ = ("topic", "partition", "election")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ELECTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    election: Election
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., election: _Optional[_Union[Election, str]] = ...) -> None: ...

class MovePartitionOperation(_message.Message):
    __slots__ = ("topic", "partition", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class CancelMoveOperation(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class DrainBrokerOperation(_message.Message):
    __slots__ = ("broker_id", "cancel")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    cancel: bool
    def __init__(self, broker_id: _Optional[int] = ..., cancel: bool = ...) -> None: ...

class RetireBrokerOperation(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class RegisterBrokerOperation(_message.Message):
    __slots__ = ("broker_id", "incarnation_id", "directory_id", "endpoints", "rack", "clean_stop_epoch", "damaged", "cluster_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    CLEAN_STOP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    incarnation_id: str
    directory_id: str
    endpoints: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.Endpoint]
    rack: str
    clean_stop_epoch: int
    damaged: _containers.RepeatedCompositeFieldContainer[DamagedReplica]
    cluster_id: str
    def __init__(self, broker_id: _Optional[int] = ..., incarnation_id: _Optional[str] = ..., directory_id: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[_metadata_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., clean_stop_epoch: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[DamagedReplica, _Mapping]]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class DamagedReplica(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    partition: int
    def __init__(self, topic_id: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class StopBrokerOperation(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ChangeInSyncOperation(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "topic_id", "partition", "leader_epoch", "partition_epoch", "in_sync")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    topic_id: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    in_sync: _containers.RepeatedCompositeFieldContainer[InSyncMember]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., topic_id: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., in_sync: _Optional[_Iterable[_Union[InSyncMember, _Mapping]]] = ...) -> None: ...

class InSyncMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class OfferLeadershipOperation(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "topic_id", "partition", "leader_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    topic_id: str
    partition: int
    leader_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., topic_id: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsOperation(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class SetUserOperation(_message.Message):
    __slots__ = ("name", "password")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    password: str
    def __init__(self, name: _Optional[str] = ..., password: _Optional[str] = ...) -> None: ...

class DeleteUserOperation(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CreateAclOperation(_message.Message):
    __slots__ = ("acl",)
    ACL_FIELD_NUMBER: _ClassVar[int]
    acl: _metadata_pb2.Acl
    def __init__(self, acl: _Optional[_Union[_metadata_pb2.Acl, _Mapping]] = ...) -> None: ...

class DeleteAclOperation(_message.Message):
    __slots__ = ("acl",)
    ACL_FIELD_NUMBER: _ClassVar[int]
    acl: _metadata_pb2.Acl
    def __init__(self, acl: _Optional[_Union[_metadata_pb2.Acl, _Mapping]] = ...) -> None: ...

class AlterQuotaOperation(_message.Message):
    __slots__ = ("entity", "set", "remove")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    entity: _metadata_pb2.QuotaEntity
    set: _containers.ScalarMap[str, float]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, entity: _Optional[_Union[_metadata_pb2.QuotaEntity, _Mapping]] = ..., set: _Optional[_Mapping[str, float]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class BarrierOperation(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OperationResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OperationResult, _Mapping]]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[NumberedOperation]
    def __init__(self, operations: _Optional[_Iterable[_Union[NumberedOperation, _Mapping]]] = ...) -> None: ...

class NumberedOperation(_message.Message):
    __slots__ = ("number", "operation")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    number: int
    operation: Operation
    def __init__(self, number: _Optional[int] = ..., operation: _Optional[_Union[Operation, _Mapping]] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[NumberedResult]
    def __init__(self, results: _Optional[_Iterable[_Union[NumberedResult, _Mapping]]] = ...) -> None: ...

class NumberedResult(_message.Message):
    __slots__ = ("number", "result")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    number: int
    result: OperationResult
    def __init__(self, number: _Optional[int] = ..., result: _Optional[_Union[OperationResult, _Mapping]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "version", "ready")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    version: int
    ready: bool
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., version: _Optional[int] = ..., ready: bool = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("version", "controller_epoch", "fenced", "interval_ms", "session_timeout_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    controller_epoch: int
    fenced: bool
    interval_ms: int
    session_timeout_ms: int
    def __init__(self, version: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., fenced: bool = ..., interval_ms: _Optional[int] = ..., session_timeout_ms: _Optional[int] = ...) -> None: ...

class ListMovesRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListMovesResponse(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("topic", "partition", "replicas", "adding", "removing", "added_in_sync", "waiting_for")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    ADDED_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    added_in_sync: _containers.RepeatedScalarFieldContainer[int]
    waiting_for: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., added_in_sync: _Optional[_Iterable[int]] = ..., waiting_for: _Optional[str] = ...) -> None: ...

class DescribeDrainRequest(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class DescribeDrainResponse(_message.Message):
    __slots__ = ("draining", "remaining_replicas", "partitions")
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    REMAINING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    draining: bool
    remaining_replicas: int
    partitions: _containers.RepeatedCompositeFieldContainer[DrainingPartition]
    def __init__(self, draining: bool = ..., remaining_replicas: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[DrainingPartition, _Mapping]]] = ...) -> None: ...

class DrainingPartition(_message.Message):
    __slots__ = ("topic", "partition", "waiting_for")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    waiting_for: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., waiting_for: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("version", "cluster_id", "watcher")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    WATCHER_FIELD_NUMBER: _ClassVar[int]
    version: int
    cluster_id: str
    watcher: str
    def __init__(self, version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., watcher: _Optional[str] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("snapshot_pieces", "entries", "version", "cluster_id")
    SNAPSHOT_PIECES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    snapshot_pieces: _containers.RepeatedScalarFieldContainer[bytes]
    entries: _containers.RepeatedCompositeFieldContainer[WatchedEntry]
    version: int
    cluster_id: str
    def __init__(self, snapshot_pieces: _Optional[_Iterable[bytes]] = ..., entries: _Optional[_Iterable[_Union[WatchedEntry, _Mapping]]] = ..., version: _Optional[int] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class WatchedEntry(_message.Message):
    __slots__ = ("version", "term", "entry")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    version: int
    term: int
    entry: bytes
    def __init__(self, version: _Optional[int] = ..., term: _Optional[int] = ..., entry: _Optional[bytes] = ...) -> None: ...
