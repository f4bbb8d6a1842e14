"""Known traps of torch's exporter: each is either refused or does no harm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphbox.deploy.onnx_runtime import load_onnxruntime
from graphbox.errors import GateError
from graphbox.export import export_onnx
from graphbox.export.onnx import TensorInput

ROWS = TensorInput("rows", torch.randn(6, 4), {0: "n_rows"})
TABLE = TensorInput("table", torch.zeros(3, 5, dtype=torch.int64), {0: "batch"})
FLAT = TensorInput("target", torch.zeros(6, dtype=torch.int64), {0: "n_rows"})


class ScatterMean(nn.Module):
    """Exports without a word to `reduction="none"`, which gives wrong numbers."""

    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        wide = target.unsqueeze(1).expand(-1, rows.shape[1])
        return torch.zeros(4, rows.shape[1]).scatter_reduce(0, wide, rows, "mean", include_self=False)


class ScatterAdd(nn.Module):
    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        return torch.zeros(4, rows.shape[1]).index_add(0, target, rows)


class Bag(nn.Module):
    """Becomes a Loop over a Sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True)

    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        vectors: Tensor = self.bag(target, torch.cumsum(target, 0))
        return vectors + rows.sum()


class Nonzero(nn.Module):
    """Model with the operation that adding self loops needs."""

    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        return rows.sum(0) * torch.nonzero(target).sum()


class Indexed(nn.Module):
    """Plain indexing with a table becomes GatherND."""

    def forward(self, rows: Tensor, table: Tensor) -> Tensor:
        return rows[table].sum(1)


class Wide(nn.Module):
    """A Linear on a 3-D tensor becomes Transpose + MatMul, which is not quantized."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, rows: Tensor, table: Tensor) -> Tensor:
        vectors: Tensor = self.linear(nn.functional.embedding(table, rows))
        return vectors.sum(1)


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (ScatterMean(), [ROWS, FLAT], "without ScatterElements"),
        (ScatterAdd(), [ROWS, FLAT], "without ScatterND"),
        (Bag(), [ROWS, FLAT], "without (If|Loop|SequenceAt)"),
        (Nonzero(), [ROWS, FLAT], "without NonZero"),
        (Indexed(), [ROWS, TABLE], "without GatherND"),
        (Wide(), [ROWS, TABLE], "expected 1 Gemm, one for each call of a Linear layer, received 0"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_forms_that_serve_badly_are_refused(
    module: nn.Module, arguments: list[TensorInput], message: str
) -> None:
    with pytest.raises(GateError, match=message):
        export_onnx(module.eval(), list(arguments))


class NamedLikeTheOutput(nn.Module):
    """Its last value is called `embedding`, as the output will be."""

    def forward(self, rows: Tensor, table: Tensor) -> Tensor:
        return nn.functional.embedding(table, rows).sum(1) + nn.functional.embedding(table[:, 0], rows)


class IsTheOutput(nn.Module):
    def forward(self, rows: Tensor, table: Tensor) -> Tensor:
        return nn.functional.embedding(table[:, 0], rows)


@pytest.mark.parametrize(
    "module", [NamedLikeTheOutput(), IsTheOutput()], ids=lambda module: type(module).__name__
)
def test_values_named_like_the_output_do_no_harm(module: nn.Module) -> None:
    exported = export_onnx(module.eval(), [ROWS, TABLE])
    session = load_onnxruntime().InferenceSession(exported.model, providers=["CPUExecutionProvider"])
    rows, table = torch.randn(9, 4), torch.randint(0, 9, (2, 5))
    (result,) = session.run(["embedding"], {"rows": rows.numpy(), "table": table.numpy()})
    np.testing.assert_allclose(result, module(rows, table).numpy(), atol=1e-6)


def test_the_same_model_gives_the_same_file() -> None:
    first, second = (export_onnx(IsTheOutput().eval(), [ROWS, TABLE]).model for _ in range(2))
    assert first == second
