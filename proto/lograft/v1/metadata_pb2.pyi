from lograft.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigResource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_RESOURCE_UNSPECIFIED: _ClassVar[ConfigResource]
    CONFIG_RESOURCE_CLUSTER: _ClassVar[ConfigResource]
    CONFIG_RESOURCE_BROKER: _ClassVar[ConfigResource]
    CONFIG_RESOURCE_TOPIC: _ClassVar[ConfigResource]

class AclResource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_RESOURCE_UNSPECIFIED: _ClassVar[AclResource]
    ACL_RESOURCE_TOPIC: _ClassVar[AclResource]
    ACL_RESOURCE_GROUP: _ClassVar[AclResource]
    ACL_RESOURCE_CLUSTER: _ClassVar[AclResource]

class AclPattern(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_PATTERN_UNSPECIFIED: _ClassVar[AclPattern]
    ACL_PATTERN_LITERAL: _ClassVar[AclPattern]
    ACL_PATTERN_PREFIXED: _ClassVar[AclPattern]

class AclOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_OPERATION_UNSPECIFIED: _ClassVar[AclOperation]
    ACL_OPERATION_ALL: _ClassVar[AclOperation]
    ACL_OPERATION_READ: _ClassVar[AclOperation]
    ACL_OPERATION_WRITE: _ClassVar[AclOperation]
    ACL_OPERATION_CREATE: _ClassVar[AclOperation]
    ACL_OPERATION_DELETE: _ClassVar[AclOperation]
    ACL_OPERATION_ALTER: _ClassVar[AclOperation]
    ACL_OPERATION_DESCRIBE: _ClassVar[AclOperation]
    ACL_OPERATION_ALTER_CONFIGS: _ClassVar[AclOperation]
    ACL_OPERATION_DESCRIBE_CONFIGS: _ClassVar[AclOperation]
    ACL_OPERATION_CLUSTER_ACTION: _ClassVar[AclOperation]
CONFIG_RESOURCE_UNSPECIFIED: ConfigResource
CONFIG_RESOURCE_CLUSTER: ConfigResource
CONFIG_RESOURCE_BROKER: ConfigResource
CONFIG_RESOURCE_TOPIC: ConfigResource
ACL_RESOURCE_UNSPECIFIED: AclResource
ACL_RESOURCE_TOPIC: AclResource
ACL_RESOURCE_GROUP: AclResource
ACL_RESOURCE_CLUSTER: AclResource
ACL_PATTERN_UNSPECIFIED: AclPattern
ACL_PATTERN_LITERAL: AclPattern
ACL_PATTERN_PREFIXED: AclPattern
ACL_OPERATION_UNSPECIFIED: AclOperation
ACL_OPERATION_ALL: AclOperation
ACL_OPERATION_READ: AclOperation
ACL_OPERATION_WRITE: AclOperation
ACL_OPERATION_CREATE: AclOperation
ACL_OPERATION_DELETE: AclOperation
ACL_OPERATION_ALTER: AclOperation
ACL_OPERATION_DESCRIBE: AclOperation
ACL_OPERATION_ALTER_CONFIGS: AclOperation
ACL_OPERATION_DESCRIBE_CONFIGS: AclOperation
ACL_OPERATION_CLUSTER_ACTION: AclOperation

class MetadataEntry(_message.Message):
    __slots__ = ("controller_epoch", "changes")
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    controller_epoch: int
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, controller_epoch: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("command_id", "claim_controller", "set_feature_level", "set_quorum_members", "barrier", "register_broker", "fence_broker", "unfence_broker", "set_broker_draining", "retire_broker", "create_topic", "delete_topic", "add_partitions", "change_partition", "alter_config", "allocate_producer_ids", "set_user", "delete_user", "create_acl", "delete_acl", "alter_quota")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    SET_FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    SET_QUORUM_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    REGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    FENCE_BROKER_FIELD_NUMBER: _ClassVar[int]
    UNFENCE_BROKER_FIELD_NUMBER: _ClassVar[int]
    SET_BROKER_DRAINING_FIELD_NUMBER: _ClassVar[int]
    RETIRE_BROKER_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ADD_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    SET_USER_FIELD_NUMBER: _ClassVar[int]
    DELETE_USER_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACL_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACL_FIELD_NUMBER: _ClassVar[int]
    ALTER_QUOTA_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    claim_controller: ClaimController
    set_feature_level: SetFeatureLevel
    set_quorum_members: SetQuorumMembers
    barrier: Barrier
    register_broker: RegisterBroker
    fence_broker: FenceBroker
    unfence_broker: UnfenceBroker
    set_broker_draining: SetBrokerDraining
    retire_broker: RetireBroker
    create_topic: CreateTopic
    delete_topic: DeleteTopic
    add_partitions: AddPartitions
    change_partition: PartitionChange
    alter_config: AlterConfig
    allocate_producer_ids: AllocateProducerIds
    set_user: SetUser
    delete_user: DeleteUser
    create_acl: CreateAcl
    delete_acl: DeleteAcl
    alter_quota: AlterQuota
    def __init__(self, command_id: _Optional[bytes] = ..., claim_controller: _Optional[_Union[ClaimController, _Mapping]] = ..., set_feature_level: _Optional[_Union[SetFeatureLevel, _Mapping]] = ..., set_quorum_members: _Optional[_Union[SetQuorumMembers, _Mapping]] = ..., barrier: _Optional[_Union[Barrier, _Mapping]] = ..., register_broker: _Optional[_Union[RegisterBroker, _Mapping]] = ..., fence_broker: _Optional[_Union[FenceBroker, _Mapping]] = ..., unfence_broker: _Optional[_Union[UnfenceBroker, _Mapping]] = ..., set_broker_draining: _Optional[_Union[SetBrokerDraining, _Mapping]] = ..., retire_broker: _Optional[_Union[RetireBroker, _Mapping]] = ..., create_topic: _Optional[_Union[CreateTopic, _Mapping]] = ..., delete_topic: _Optional[_Union[DeleteTopic, _Mapping]] = ..., add_partitions: _Optional[_Union[AddPartitions, _Mapping]] = ..., change_partition: _Optional[_Union[PartitionChange, _Mapping]] = ..., alter_config: _Optional[_Union[AlterConfig, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIds, _Mapping]] = ..., set_user: _Optional[_Union[SetUser, _Mapping]] = ..., delete_user: _Optional[_Union[DeleteUser, _Mapping]] = ..., create_acl: _Optional[_Union[CreateAcl, _Mapping]] = ..., delete_acl: _Optional[_Union[DeleteAcl, _Mapping]] = ..., alter_quota: _Optional[_Union[AlterQuota, _Mapping]] = ...) -> None: ...

class ClaimController(_message.Message):
    __slots__ = ("node", "cluster_id")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    node: str
    cluster_id: str
    def __init__(self, node: _Optional[str] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class SetFeatureLevel(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: int
    def __init__(self, level: _Optional[int] = ...) -> None: ...

class SetQuorumMembers(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[QuorumMember]
    def __init__(self, members: _Optional[_Iterable[_Union[QuorumMember, _Mapping]]] = ...) -> None: ...

class QuorumMember(_message.Message):
    __slots__ = ("name", "directory_id", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    directory_id: str
    address: str
    def __init__(self, name: _Optional[str] = ..., directory_id: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Barrier(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RegisterBroker(_message.Message):
    __slots__ = ("broker_id", "incarnation_id", "directory_id", "endpoints", "rack", "partitions", "registered_at_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    incarnation_id: str
    directory_id: str
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    rack: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionChange]
    registered_at_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., incarnation_id: _Optional[str] = ..., directory_id: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionChange, _Mapping]]] = ..., registered_at_ms: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class FenceBroker(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "partitions", "reason")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionChange]
    reason: str
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionChange, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class UnfenceBroker(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "partitions")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionChange]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionChange, _Mapping]]] = ...) -> None: ...

class SetBrokerDraining(_message.Message):
    __slots__ = ("broker_id", "draining")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    draining: bool
    def __init__(self, broker_id: _Optional[int] = ..., draining: bool = ...) -> None: ...

class RetireBroker(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class CreateTopic(_message.Message):
    __slots__ = ("name", "topic_id", "assignments", "configs", "created_at_ms")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    configs: _containers.ScalarMap[str, str]
    created_at_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., configs: _Optional[_Mapping[str, str]] = ..., created_at_ms: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("replicas", "in_sync", "leader")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    in_sync: _containers.RepeatedScalarFieldContainer[int]
    leader: int
    def __init__(self, replicas: _Optional[_Iterable[int]] = ..., in_sync: _Optional[_Iterable[int]] = ..., leader: _Optional[int] = ...) -> None: ...

class DeleteTopic(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    def __init__(self, topic_id: _Optional[str] = ...) -> None: ...

class AddPartitions(_message.Message):
    __slots__ = ("topic_id", "existing_partitions", "assignments")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EXISTING_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    existing_partitions: int
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, topic_id: _Optional[str] = ..., existing_partitions: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class PartitionChange(_message.Message):
    __slots__ = ("topic_id", "partition", "partition_epoch", "replicas", "in_sync", "eligible", "leader", "leader_epoch", "adding", "removing", "unclean")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    partition: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    in_sync: _containers.RepeatedScalarFieldContainer[int]
    eligible: _containers.RepeatedScalarFieldContainer[int]
    leader: int
    leader_epoch: int
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    unclean: bool
    def __init__(self, topic_id: _Optional[str] = ..., partition: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., in_sync: _Optional[_Iterable[int]] = ..., eligible: _Optional[_Iterable[int]] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., unclean: bool = ...) -> None: ...

class AlterConfig(_message.Message):
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
    resource: ConfigResource
    name: str
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource: _Optional[_Union[ConfigResource, str]] = ..., name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class AllocateProducerIds(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "count")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    count: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class SetUser(_message.Message):
    __slots__ = ("name", "credential")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    credential: Credential
    def __init__(self, name: _Optional[str] = ..., credential: _Optional[_Union[Credential, _Mapping]] = ...) -> None: ...

class Credential(_message.Message):
    __slots__ = ("scheme", "salt", "hash", "n", "r", "p")
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    R_FIELD_NUMBER: _ClassVar[int]
    P_FIELD_NUMBER: _ClassVar[int]
    scheme: str
    salt: bytes
    hash: bytes
    n: int
    r: int
    p: int
    def __init__(self, scheme: _Optional[str] = ..., salt: _Optional[bytes] = ..., hash: _Optional[bytes] = ..., n: _Optional[int] = ..., r: _Optional[int] = ..., p: _Optional[int] = ...) -> None: ...

class DeleteUser(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("principal", "resource", "resource_name", "pattern", "operation", "deny", "host")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    principal: str
    resource: AclResource
    resource_name: str
    pattern: AclPattern
    operation: AclOperation
    deny: bool
    host: str
    def __init__(self, principal: _Optional[str] = ..., resource: _Optional[_Union[AclResource, str]] = ..., resource_name: _Optional[str] = ..., pattern: _Optional[_Union[AclPattern, str]] = ..., operation: _Optional[_Union[AclOperation, str]] = ..., deny: bool = ..., host: _Optional[str] = ...) -> None: ...

class CreateAcl(_message.Message):
    __slots__ = ("acl",)
    ACL_FIELD_NUMBER: _ClassVar[int]
    acl: Acl
    def __init__(self, acl: _Optional[_Union[Acl, _Mapping]] = ...) -> None: ...

class DeleteAcl(_message.Message):
    __slots__ = ("acl",)
    ACL_FIELD_NUMBER: _ClassVar[int]
    acl: Acl
    def __init__(self, acl: _Optional[_Union[Acl, _Mapping]] = ...) -> None: ...

class QuotaEntity(_message.Message):
    __slots__ = ("user", "client_id")
    USER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    user: str
    client_id: str
    def __init__(self, user: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class AlterQuota(_message.Message):
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
    entity: QuotaEntity
    set: _containers.ScalarMap[str, float]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, entity: _Optional[_Union[QuotaEntity, _Mapping]] = ..., set: _Optional[_Mapping[str, float]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class SnapshotPiece(_message.Message):
    __slots__ = ("header", "brokers", "topics", "partitions", "configs", "users", "acls", "quotas", "answered", "complete")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    header: SnapshotHeader
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerState]
    topics: _containers.RepeatedCompositeFieldContainer[TopicState]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRun]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigState]
    users: _containers.RepeatedCompositeFieldContainer[UserState]
    acls: _containers.RepeatedCompositeFieldContainer[Acl]
    quotas: _containers.RepeatedCompositeFieldContainer[QuotaState]
    answered: _containers.RepeatedCompositeFieldContainer[AnsweredCommand]
    complete: bool
    def __init__(self, header: _Optional[_Union[SnapshotHeader, _Mapping]] = ..., brokers: _Optional[_Iterable[_Union[BrokerState, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[TopicState, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionRun, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[ConfigState, _Mapping]]] = ..., users: _Optional[_Iterable[_Union[UserState, _Mapping]]] = ..., acls: _Optional[_Iterable[_Union[Acl, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[QuotaState, _Mapping]]] = ..., answered: _Optional[_Iterable[_Union[AnsweredCommand, _Mapping]]] = ..., complete: bool = ...) -> None: ...

class SnapshotHeader(_message.Message):
    __slots__ = ("format_version", "feature_level", "version", "term", "cluster_id", "controller_epoch", "controller_node", "next_broker_epoch", "next_producer_id", "members", "previous_term")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_NODE_FIELD_NUMBER: _ClassVar[int]
    NEXT_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    feature_level: int
    version: int
    term: int
    cluster_id: str
    controller_epoch: int
    controller_node: str
    next_broker_epoch: int
    next_producer_id: int
    members: _containers.RepeatedCompositeFieldContainer[QuorumMember]
    previous_term: int
    def __init__(self, format_version: _Optional[int] = ..., feature_level: _Optional[int] = ..., version: _Optional[int] = ..., term: _Optional[int] = ..., cluster_id: _Optional[str] = ..., controller_epoch: _Optional[int] = ..., controller_node: _Optional[str] = ..., next_broker_epoch: _Optional[int] = ..., next_producer_id: _Optional[int] = ..., members: _Optional[_Iterable[_Union[QuorumMember, _Mapping]]] = ..., previous_term: _Optional[int] = ...) -> None: ...

class BrokerState(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "incarnation_id", "directory_id", "endpoints", "rack", "fenced", "draining", "fence_reason", "registered_version", "registered_at_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    FENCE_REASON_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_VERSION_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    incarnation_id: str
    directory_id: str
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    rack: str
    fenced: bool
    draining: bool
    fence_reason: str
    registered_version: int
    registered_at_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., incarnation_id: _Optional[str] = ..., directory_id: _Optional[str] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., fenced: bool = ..., draining: bool = ..., fence_reason: _Optional[str] = ..., registered_version: _Optional[int] = ..., registered_at_ms: _Optional[int] = ...) -> None: ...

class TopicState(_message.Message):
    __slots__ = ("topic_id", "name", "created_at_ms", "partition_count")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    name: str
    created_at_ms: int
    partition_count: int
    def __init__(self, topic_id: _Optional[str] = ..., name: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., partition_count: _Optional[int] = ...) -> None: ...

class PartitionRun(_message.Message):
    __slots__ = ("topic_id", "first_partition", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_PARTITION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    first_partition: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionState]
    def __init__(self, topic_id: _Optional[str] = ..., first_partition: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionState, _Mapping]]] = ...) -> None: ...

class PartitionState(_message.Message):
    __slots__ = ("replicas", "in_sync", "eligible", "leader", "leader_epoch", "partition_epoch", "adding", "removing")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    in_sync: _containers.RepeatedScalarFieldContainer[int]
    eligible: _containers.RepeatedScalarFieldContainer[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replicas: _Optional[_Iterable[int]] = ..., in_sync: _Optional[_Iterable[int]] = ..., eligible: _Optional[_Iterable[int]] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ...) -> None: ...

class ConfigState(_message.Message):
    __slots__ = ("resource", "name", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    name: str
    values: _containers.ScalarMap[str, str]
    def __init__(self, resource: _Optional[_Union[ConfigResource, str]] = ..., name: _Optional[str] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UserState(_message.Message):
    __slots__ = ("name", "credential")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    credential: Credential
    def __init__(self, name: _Optional[str] = ..., credential: _Optional[_Union[Credential, _Mapping]] = ...) -> None: ...

class QuotaState(_message.Message):
    __slots__ = ("entity", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    entity: QuotaEntity
    values: _containers.ScalarMap[str, float]
    def __init__(self, entity: _Optional[_Union[QuotaEntity, _Mapping]] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class AnsweredCommand(_message.Message):
    __slots__ = ("command_id", "result")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    command_id: bytes
    result: ChangeResult
    def __init__(self, command_id: _Optional[bytes] = ..., result: _Optional[_Union[ChangeResult, _Mapping]] = ...) -> None: ...

class ChangeResult(_message.Message):
    __slots__ = ("applied", "rejected")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    applied: Applied
    rejected: _errors_pb2.ErrorDetail
    def __init__(self, applied: _Optional[_Union[Applied, _Mapping]] = ..., rejected: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class Applied(_message.Message):
    __slots__ = ("version", "number", "id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    number: int
    id: str
    def __init__(self, version: _Optional[int] = ..., number: _Optional[int] = ..., id: _Optional[str] = ...) -> None: ...
