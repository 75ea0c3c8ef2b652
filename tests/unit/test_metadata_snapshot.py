"""Snapshots of the metadata: canonical bytes, complete or refused, and copies that later changes do not reach."""

from collections.abc import Callable

import pytest

from lograft.contract.errors import UnsupportedVersion
from lograft.metadata_quorum.core.apply import apply_entry
from lograft.metadata_quorum.core.invariants import violations
from lograft.metadata_quorum.core.model import (
    Acl,
    Broker,
    ClusterState,
    ConfigKey,
    Credential,
    Endpoint,
    Member,
    Partition,
    PartitionKey,
    QuotaKey,
    Topic,
)
from lograft.metadata_quorum.core.snapshot import SnapshotLoader, capture, encode_pieces
from lograft.v1 import metadata_pb2 as pb


def full_state(*, backwards: bool = False) -> ClusterState:
    """A state with something of everything; the other way round it is filled in another order."""
    order: Callable[[list[int]], list[int]] = (lambda numbers: numbers[::-1]) if backwards else list
    state = ClusterState(
        version=900,
        term=7,
        previous_term=6,
        cluster_id="c1",
        controller_epoch=7,
        controller_node="q2",
        members=(Member("q2", "d2", "h2:1"), Member("q1", "d1", "h1:1")),
        next_broker_epoch=9,
        next_producer_id=3000,
    )
    for broker_id in order([0, 1, 2, 300]):
        state.brokers[broker_id] = Broker(
            broker_id=broker_id,
            broker_epoch=broker_id % 8 + 1,
            incarnation_id=f"i{broker_id}",
            directory_id="d",
            endpoints=(Endpoint("client", "h", 1), Endpoint("replication", "h", 2)),
            rack="r",
            fenced=broker_id == 2,
            draining=broker_id == 1,
            fence_reason="silent" if broker_id == 2 else "",
            registered_version=5,
            registered_at_ms=6,
        )
    for number in order([1, 2, 3]):
        partitions = [
            Partition((0, 1, 2), (0, 1), (2,), 0, index % 7, index % 7 + 3, (1,), (2,)) for index in range(200)
        ]
        partitions.append(Partition((2,), (), (), None, 5, 5))
        state.topics[f"id{number}"] = Topic(f"id{number}", f"topic{number}", 11, partitions)
        state.topic_ids[f"topic{number}"] = f"id{number}"
        for index, partition in enumerate(partitions):
            key = PartitionKey(f"id{number}", index)
            for replica in partition.replicas:
                state.replicas_on.setdefault(replica, {})[key] = None
            if partition.adding:
                state.moving[key] = None
    for number in order([1, 2, 3]):
        values = {f"key{index}": str(number) for index in order([1, 2, 3])}
        state.configs[ConfigKey(pb.CONFIG_RESOURCE_TOPIC, f"id{number}")] = values
        state.users[f"user{number}"] = Credential("scrypt", b"s", b"h", 1, 2, 3)
        state.acls[Acl("user:a", 1, f"t{number}", 1, 2, number == 2, "h")] = None
        state.quotas[QuotaKey(f"user{number}", "")] = {f"rate{index}": float(index) for index in order([1, 2, 3])}
    state.configs[ConfigKey(pb.CONFIG_RESOURCE_CLUSTER, "")] = {"a": ""}
    state.answered[b"z" * 16] = pb.ChangeResult(applied=pb.Applied(version=3, number=4)).SerializeToString()
    state.answered[b"a" * 16] = pb.ChangeResult(applied=pb.Applied(version=4, id="x")).SerializeToString()
    return state


def pieces(state: ClusterState, piece_bytes: int = 256 << 10) -> list[bytes]:
    return list(encode_pieces(capture(state), piece_bytes=piece_bytes))


def loaded(parts: list[bytes]) -> ClusterState:
    loader = SnapshotLoader()
    for part in parts:
        loader.add(part)
    return loader.finish()


@pytest.mark.parametrize("piece_bytes", [1, 300, 2000, 1 << 20])
def test_snapshot_when_loaded_then_equal_state_with_indexes(piece_bytes: int) -> None:
    state = full_state()
    assert violations(state) == []
    copy = loaded(pieces(state, piece_bytes))
    assert copy == state
    assert list(copy.answered.items()) == list(state.answered.items())
    assert violations(copy, state) == []
    assert pieces(copy, piece_bytes) == pieces(state, piece_bytes)


def test_snapshot_of_nothing_when_loaded_then_empty_state() -> None:
    parts = pieces(ClusterState())
    assert len(parts) == 1
    assert loaded(parts) == ClusterState()


def test_snapshot_when_filled_in_another_order_then_equal_bytes() -> None:
    assert pieces(full_state(), 500) == pieces(full_state(backwards=True), 500)


def test_snapshot_when_topics_are_large_then_pieces_stay_small() -> None:
    sizes = [len(piece) for piece in pieces(full_state(), 2000)]
    assert len(sizes) > 5
    assert max(sizes) <= 2000


def test_copy_when_state_changes_then_keeps_its_moment() -> None:
    state = full_state()
    before = pieces(state)
    copy = capture(state)
    assert (copy.version, copy.term) == (900, 7)
    partition = state.topics["id1"].partitions[0]._replace(eligible=())
    changes = [
        pb.Change(
            command_id=b"1", change_partition=pb.PartitionChange(topic_id="id1", partition=0, **partition._asdict())
        ),
        pb.Change(alter_config=pb.AlterConfig(resource=pb.CONFIG_RESOURCE_TOPIC, name="id1", set={"key1": "x"})),
        pb.Change(alter_quota=pb.AlterQuota(entity=pb.QuotaEntity(user="user1"), set={"rate1": 9})),
        pb.Change(
            add_partitions=pb.AddPartitions(
                topic_id="id2",
                existing_partitions=201,
                assignments=[pb.Assignment(replicas=[0], in_sync=[0], leader=0)],
            )
        ),
        pb.Change(delete_topic=pb.DeleteTopic(topic_id="id3")),
        pb.Change(delete_user=pb.DeleteUser(name="user1")),
        pb.Change(set_broker_draining=pb.SetBrokerDraining(broker_id=0, draining=True)),
        pb.Change(register_broker=pb.RegisterBroker(broker_id=5, incarnation_id="i")),
    ]
    results = apply_entry(state, pb.MetadataEntry(controller_epoch=7, changes=changes), version=901, term=7)
    assert all(result.HasField("applied") for result in results)
    assert list(encode_pieces(copy)) == before
    assert pieces(state) != before


def test_snapshot_when_a_piece_is_missing_then_refused() -> None:
    parts = pieces(full_state(), 500)
    for missing in range(len(parts)):
        content = pb.SnapshotPiece.FromString(parts[missing])
        if missing and not (content.brokers or content.topics or content.partitions or content.complete):
            continue  # nothing counts users or ACLs: the carrier of the pieces has to keep them all
        with pytest.raises(ValueError, match=r"snapshot|out of order"):
            loaded(parts[:missing] + parts[missing + 1 :])


def test_snapshot_when_pieces_are_swapped_then_refused() -> None:
    state = full_state()
    state.answered.clear()  # the only thing whose order cannot be told from itself
    parts = pieces(state, 100)
    refused = 0
    for first in range(len(parts) - 1):
        swapped = [*parts[:first], parts[first + 1], parts[first], *parts[first + 2 :]]
        try:
            assert loaded(swapped) == state  # two kinds of things, one after the other: any order will do
        except ValueError:
            refused += 1
    assert refused > len(parts) * 0.8


def test_snapshot_when_a_piece_comes_twice_then_refused() -> None:
    parts = pieces(full_state(), 500)
    for repeated in range(len(parts)):
        with pytest.raises(ValueError, match=r"snapshot|out of order"):
            loaded(parts[: repeated + 1] + parts[repeated:])


def test_snapshot_when_it_goes_on_after_its_end_or_is_no_snapshot_then_refused() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        SnapshotLoader().add(b"\xff\xff")
    with pytest.raises(ValueError, match="not complete"):
        SnapshotLoader().finish()
    with pytest.raises(ValueError, match="header"):
        SnapshotLoader().add(b"")
    with pytest.raises(ValueError, match="after its last piece"):
        loaded([*pieces(ClusterState()), b""])
    with pytest.raises(ValueError, match="format version"):
        SnapshotLoader().add(pb.SnapshotPiece(header=pb.SnapshotHeader()).SerializeToString())


def test_snapshot_when_two_topics_have_one_name_then_refused() -> None:
    piece = pb.SnapshotPiece.FromString(pieces(full_state())[0])
    piece.topics[1].name = piece.topics[0].name
    with pytest.raises(ValueError, match="two topics"):
        loaded([piece.SerializeToString()])


@pytest.mark.parametrize(("field", "value"), [("format_version", 2), ("feature_level", 2)])
def test_snapshot_when_of_a_later_release_then_unsupported(field: str, value: int) -> None:
    piece = pb.SnapshotPiece.FromString(pieces(ClusterState())[0])
    setattr(piece.header, field, value)
    with pytest.raises(UnsupportedVersion) as caught:
        loaded([piece.SerializeToString()])
    assert caught.value.found == value
