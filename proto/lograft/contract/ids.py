"""Typed names for the things that are numbered, and the rules for topic names."""

import re
import uuid
from typing import NamedTuple, NewType

from lograft.contract.errors import InvalidTopicName

BrokerId = NewType("BrokerId", int)
ClusterId = NewType("ClusterId", str)
DirectoryId = NewType("DirectoryId", str)
TopicId = NewType("TopicId", str)
ProducerId = NewType("ProducerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)
# Offsets count records, positions count bytes. Ends are exclusive everywhere.
Offset = NewType("Offset", int)
Position = NewType("Position", int)

MAX_TOPIC_NAME_LENGTH = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_DIRECTORY_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,8})")


def random_id() -> str:
    """A fresh id for a topic, a directory or a cluster: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def check_topic_name(name: str) -> str:
    """Return ``name`` if it is a legal topic name (Kafka's rules), else raise `InvalidTopicName`."""
    if name in ("", ".", ".."):
        problem = "is empty" if not name else "is a name of the file system"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        problem = f"is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    elif not _TOPIC_NAME.fullmatch(name):
        problem = "has other characters than ASCII letters, digits, '.', '_' and '-'"
    else:
        return name
    raise InvalidTopicName(name[:300], problem)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    @property
    def directory_name(self) -> str:
        """Name of the partition's directory on each of its brokers."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def from_directory_name(cls, name: str) -> "TopicPartition | None":
        """The partition a directory name stands for; None if it is not ``<topic>-<index>``."""
        match = _DIRECTORY_NAME.fullmatch(name)
        if match is None or match["topic"] in (".", "..") or len(match["topic"]) > MAX_TOPIC_NAME_LENGTH:
            return None
        return cls(match["topic"], int(match["partition"]))

    def __str__(self) -> str:
        return self.directory_name
