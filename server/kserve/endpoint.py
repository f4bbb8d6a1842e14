"""A signature of an open model, as the KServe protocol calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphbox.deploy.signature import Signature
from graphbox.errors import InvalidRequestError, NotFoundError
from graphbox.server.executor import CostEstimate
from graphbox.server.kserve.tensors import Tensor

__all__ = ["Endpoint"]


class Endpoint:
    """A signature, and what its executions cost.

    Attributes:
        signature: inputs, outputs and parameters.
        cost: estimate from the executions.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.cost = CostEstimate()

    def run(self, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the outputs of a decoded request by name.

        Raises:
            InvalidRequestError: the inputs are well-formed but not what the model reads.
        """
        try:
            return self.signature.answer(inputs, parameters)
        except NotFoundError as error:
            # 404 would say that the model does not exist.
            raise InvalidRequestError(error.message, where=error.where, hint=error.hint) from error
