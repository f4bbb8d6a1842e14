"""Learning of table rows when the training loop says so, not in backward."""

from __future__ import annotations

import torch

from graphbox.errors import ConflictError, UsageError
from graphbox.table.gradients import Gradients
from graphbox.table.module import TableModule

__all__ = ["TableOptimizer"]


class TableOptimizer:
    """Keeps the gradients of table rows until ``step()``, as the optimizers of torch do.

    Without one, rows learn at the end of each ``backward()``. With it, the backward passes between two steps
    count as one, so that gradients can be accumulated over micro-batches, and a batch whose loss turns out
    wrong can be left out: the results are those of ``torch.nn.Embedding`` and an optimizer of torch.
    Gradients take float32 [keys, dim] for each backward pass until the step.

    Args:
        modules: models; all modules over tables in them are meant.

    Raises:
        UsageError: there is no module over a table in them.
        ConflictError: one belongs to another TableOptimizer.
    """

    def __init__(self, *modules: torch.nn.Module) -> None:
        self._gradients = Gradients()
        found = dict.fromkeys(
            each for module in modules for each in module.modules() if isinstance(each, TableModule)
        )
        if not found:
            raise UsageError("expected models with modules over tables, received none", where="modules")
        for each in found:
            if each._gradients is not None:
                raise ConflictError(
                    "a module over a table has one TableOptimizer at most",
                    where=repr(each),
                    hint="close() it",
                )
        for each in found:
            each._gradients = self._gradients
        self._modules = tuple(found)

    def step(self) -> None:
        """Apply the gradients since the last step, to each row once; there are none left then.

        Raises:
            DataError: a gradient that holds NaN or infinity; its table learned nothing, nor did those that
                come after it in the forward pass.
        """
        self._gradients.push()

    def zero_grad(self) -> None:
        """Forget the gradients since the last step."""
        self._gradients.drop()

    def close(self) -> None:
        """Forget the gradients; rows learn at the end of ``backward()`` again."""
        self.zero_grad()
        for each in self._modules:
            each._gradients = None
