"""Descriptors of the messages, in a pool of their own.

A client library for the same protocol in the same process registers the same names in the default pool.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

__all__ = ["file_descriptor", "message_classes"]

_FILE = Path(__file__).with_name("descriptors.binpb")  # by `make proto`
_pool = DescriptorPool()
for _file in FileDescriptorSet.FromString(_FILE.read_bytes()).file:
    _pool.Add(_file)


def file_descriptor(name: str) -> FileDescriptor:
    """Return the descriptor of a ``.proto`` file by its name."""
    return _pool.FindFileByName(name)


def message_classes(file: FileDescriptor) -> dict[str, type[Message]]:
    """Return the class of each message of a file by its name."""
    return {name: GetMessageClass(each) for name, each in file.message_types_by_name.items()}
