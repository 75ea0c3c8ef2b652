"""Names of topics, and directories that stand for partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.contract.errors import InvalidTopicName
from lograft.contract.ids import MAX_TOPIC_NAME_LENGTH, TopicPartition, check_topic_name, random_id

LEGAL_CHARACTERS = "abcXYZ019._-"


@pytest.mark.requirement("R1")
@pytest.mark.parametrize(
    "name", ["a", "A", "0", "-", "_", "...", ".a", "a.", "orders", "a-b_c.D-9", "a-0", "x" * MAX_TOPIC_NAME_LENGTH]
)
def test_topic_name_that_is_legal_is_returned(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.requirement("R1")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        (".", "a name of the file system"),
        ("..", "a name of the file system"),
        ("x" * (MAX_TOPIC_NAME_LENGTH + 1), "longer than 249"),
        ("x" * 1_000_000, "longer than 249"),
        ("a b", "other characters"),
        ("a/b", "other characters"),
        ("../a", "other characters"),
        ("a\\b", "other characters"),
        ("a\n", "other characters"),
        ("\na", "other characters"),
        ("a\x00", "other characters"),
        ("é", "other characters"),
        ("a٣", "other characters"),
        ("\ud800", "other characters"),
    ],
)
def test_topic_name_that_is_illegal_is_refused_in_few_words(name: str, problem: str) -> None:
    with pytest.raises(InvalidTopicName, match=problem) as caught:
        check_topic_name(name)
    text = str(caught.value)
    assert len(text) < 500
    assert text.isprintable()


@pytest.mark.requirement("R2")
@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-0", "orders", 0),
        ("orders-12", "orders", 12),
        ("a-b-3", "a-b", 3),
        ("a--1", "a-", 1),
        ("a-1-2", "a-1", 2),
        ("--0", "-", 0),
        ("...-0", "...", 0),
        (".a-7", ".a", 7),
        ("a-999999999", "a", 999_999_999),
        ("x" * 249 + "-1", "x" * 249, 1),
    ],
)
def test_directory_name_of_a_partition_is_read_back(name: str, topic: str, partition: int) -> None:
    assert TopicPartition.from_directory_name(name) == TopicPartition(topic, partition)
    assert TopicPartition(topic, partition).directory_name == str(TopicPartition(topic, partition)) == name


@pytest.mark.requirement("R2")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "-0",
        "a",
        "a-",
        "0",
        "a-01",
        "a-00",
        "a-+1",
        "a- 1",
        "a-1 ",
        "a-1_0",
        "a-0x1",
        "a-\u0661",
        "a-\uff11",
        "a-²",
        "a-1\n",
        "\na-1",
        "a\n-1",
        "é-1",
        "a/b-1",
        ".-0",
        "..-0",
        "a-1000000000",
        "a-0.tmp",
        "a-0-deleted",
        "directory.meta",
        "lost+found",
        "x" * 250 + "-1",
    ],
)
def test_directory_name_that_is_no_partition_is_left_alone(name: str) -> None:
    assert TopicPartition.from_directory_name(name) is None


@given(
    st.text(LEGAL_CHARACTERS, min_size=1, max_size=MAX_TOPIC_NAME_LENGTH).filter(lambda name: name not in (".", "..")),
    st.integers(0, 999_999_999),
)
def test_directory_name_of_any_partition_stands_for_that_one_alone(topic: str, partition: int) -> None:
    there = TopicPartition(check_topic_name(topic), partition)
    assert TopicPartition.from_directory_name(there.directory_name) == there


@given(st.text(LEGAL_CHARACTERS + "/\n ٣", max_size=20))
def test_directory_name_of_any_text_is_no_partition_or_exactly_its_name(name: str) -> None:
    there = TopicPartition.from_directory_name(name)
    assert there is None or there.directory_name == name
    if there is not None:
        check_topic_name(there.topic)


def test_random_ids_are_different_and_safe_in_names() -> None:
    ids = {random_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(one) == 32 and check_topic_name(one) for one in ids)
