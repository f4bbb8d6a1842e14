"""Classes of the messages of ``health.proto``; their fields are in the stub beside this file."""

from graphbox.server.grpc.descriptors import file_descriptor, message_classes

DESCRIPTOR = file_descriptor("health.proto")
globals().update(message_classes(DESCRIPTOR))
