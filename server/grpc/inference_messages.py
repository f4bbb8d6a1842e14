"""Classes of the messages of ``inference.proto``; their fields are in the stub beside this file."""

from graphbox.server.grpc.descriptors import file_descriptor, message_classes

DESCRIPTOR = file_descriptor("inference.proto")
globals().update(message_classes(DESCRIPTOR))
