"""Learning of table rows when the training loop says so, not in backward."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, overload

import torch
from torch import Tensor

from graphbox.errors import ConflictError, UnsupportedError, UsageError
from graphbox.table.gradients import Gradients
from graphbox.table.module import TableModule
from graphbox.table.protocol import Table


class TableOptimizer(torch.optim.Optimizer):
    """Keeps the gradients of table rows until ``step()``, as the optimizers of torch do.

    Without one, rows learn at the end of each ``backward()``. With it, the backward passes between two steps
    count as one, so that gradients can be accumulated over micro-batches, and a batch whose loss turns out
    wrong can be left out: the results are those of ``torch.nn.Embedding`` and an optimizer of torch.
    Gradients take float32 [keys, dim] for each backward pass until the step.

    It is an optimizer for whatever takes those of torch: each table is a parameter group without parameters,
    whose ``lr`` is the table's, so that ``torch.optim.lr_scheduler`` changes it. Everything else about the
    update is the table's own. Tables in several processes (:class:`ShardedTable`) learn in ``step()``, which
    all processes call alike, from the gradients of all.

    Args:
        modules: models; all modules over tables in them are meant.

    Raises:
        UsageError: there is no module over a table in them.
        ConflictError: one belongs to another TableOptimizer.
    """

    _step_supports_amp_scaling = True  # torch.amp.GradScaler tells step() how the loss was scaled

    def __init__(self, *modules: torch.nn.Module) -> None:
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
        self._gradients = Gradients()
        self._modules = tuple(found)
        self._tables: tuple[Table, ...] = tuple(
            dict.fromkeys(table for module in found for table in module.tables)
        )
        self._collective = [each for each in self._tables if each.is_collective]
        super().__init__([{"params": [], "lr": table.lr} for table in self._tables], {})
        self._rates = [table.lr for table in self._tables]  # of the tables when they were last compared
        for module in found:
            module._gradients = self._gradients

    def __repr__(self) -> str:
        return f"TableOptimizer({', '.join(map(repr, self._tables))})"

    def __getstate__(self) -> NoReturn:
        raise UnsupportedError(
            "a TableOptimizer can be neither copied nor pickled: it belongs to modules over tables",
            hint="its state_dict() has the learning rates, which are all it has",
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take a table's group; dense parameters belong to an optimizer of torch.

        Raises:
            UsageError: there are parameters in it.
        """
        if list(param_group.get("params", ())):
            raise UsageError(
                "expected no parameters: a TableOptimizer applies the gradients of table rows",
                where="param_group",
                hint="give parameters to an optimizer of torch beside this one",
            )
        # As torch has it below what keeps it out of torch.compile, whose import takes a second and 190 MB.
        inspect.unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)

    @overload
    def step(self, closure: None = ...) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Apply the gradients since the last step, to each row once; there are none left then.

        Args:
            closure: computes the loss anew and calls ``backward()``, as for optimizers of torch.

        Returns:
            What ``closure`` returned.

        Raises:
            DataError: a gradient that holds NaN or infinity; its table learned nothing, nor did those that
                come after it in the forward pass.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._agree_about_rates()
        self._undo_loss_scale()
        self._gradients.push(self._collective)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002 - as torch calls it
        """Forget the gradients since the last step."""
        self._gradients.drop()

    def clip_grad_norm_(self, parameters: Tensor | Iterable[Tensor], max_norm: float) -> Tensor:
        """Shorten all gradients, those of parameters and of rows as one vector, to this Euclidean norm.

        What ``torch.nn.utils.clip_grad_norm_`` does, which knows nothing of rows. The gradients of equal keys
        are summed first. Tables with ``mean_gradient`` divide them only afterwards.

        Args:
            parameters: the dense part, ``model.parameters()``.
            max_norm: of all gradients together.

        Returns:
            The norm before.

        Raises:
            UsageError: ``max_norm`` is no number above 0.
            UnsupportedError: a table in several processes.
        """
        self._refuse_collective("clip_grad_norm_", "give the tables clip_norm=, which is of each row")
        if not max_norm > 0 or math.isinf(max_norm):
            raise UsageError(f"expected a finite number above 0, received {max_norm!r}", where="max_norm")
        dense = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        grads = [parameter.grad for parameter in dense if parameter.grad is not None]
        norms = [torch.linalg.vector_norm(grad).cpu() for grad in grads]
        norm: Tensor = torch.linalg.vector_norm(torch.stack([*norms, torch.tensor(self._gradients.norm())]))
        factor = min(1.0, max_norm / (float(norm) + 1e-6))
        if factor < 1:
            for grad in grads:
                grad.mul_(factor)
            self._gradients.scale(factor)
        return norm

    def close(self) -> None:
        """Forget the gradients; rows learn at the end of ``backward()`` again."""
        self.zero_grad()
        for each in self._modules:
            each._gradients = None

    def _undo_loss_scale(self) -> None:
        """Divide by what a GradScaler multiplied the loss with; gradients that overflowed are left out."""
        if not hasattr(self, "found_inf"):
            return
        self._refuse_collective("a GradScaler", "train in bfloat16, which needs none")
        scale: Tensor | None = getattr(self, "grad_scale", None)
        if scale is None:
            raise UsageError(
                "expected a GradScaler that did not unscale_() this optimizer: it does not reach table rows",
                where="scaler.step",
                hint="leave unscale_() out for the TableOptimizer; tables clip by clip_norm= and clip_value=",
            )
        self._gradients.scale(1 / float(scale))
        if not math.isfinite(self._gradients.norm()):
            self._gradients.drop()

    def _refuse_collective(self, what: str, hint: str) -> None:
        """Refuse what each process would decide by gradients of its own."""
        if self._collective:
            raise UnsupportedError(
                f"expected tables of this process alone for {what}, received one in several processes",
                where=repr(self._collective[0]),
                hint=hint,
            )

    def _agree_about_rates(self) -> None:
        """Give tables the learning rates of their groups, and the groups those that tables got elsewhere."""
        for number, (group, table) in enumerate(zip(self.param_groups, self._tables, strict=True)):
            if table.lr != self._rates[number]:
                group["lr"] = table.lr
            elif group["lr"] != table.lr:
                table.lr = float(group["lr"])
            self._rates[number] = table.lr
