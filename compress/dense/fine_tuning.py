"""Fine-tuning of a pruned or coarsely rounded ONNX part, by the answers of the original.

No labels are needed: the model learns to give the outputs that the float32 original gives for its own queries
(self-distillation; Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015), while it
computes with the rounded operands of the method that it will be converted by
(`graphbox.compress.dense.rounded_module`). What is trained and for how long is a function of the model, the
queries and the seed, and torch computes on one thread, so that on one machine the same weights come out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from graphbox.compress.dense.calibration import Calibration, Queries
from graphbox.compress.dense.conversion import output_error
from graphbox.compress.dense.method import DenseMethod, OutputError
from graphbox.compress.dense.onnx_graph import Graph
from graphbox.compress.dense.values import Values, open_on_cpu, outputs_of
from graphbox.errors import BackendMissingError, DataError, GateError, UnsupportedError, missing_extra

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.compress.dense.rounded_module import RoundedModule

__all__ = ["FineTuned", "can_fine_tune", "fine_tune"]

LEAST_QUERIES: Final = 64
_MAX_QUERIES: Final = 1 << 15
_HELD_OUT_SHARE: Final = 5
_MAX_HELD_OUT: Final = 1024
_MAX_ROWS: Final = 1 << 20
_MAX_BYTES: Final = 128 << 20
_BATCH: Final = 64
_EPOCHS: Final = 2
_RATE: Final = 0.003
_RATE_OF_PRUNED: Final = 0.01
"""Steps of Adam, relative to the root mean square of the weight: models of any scale are trained alike. What
was pruned has farther to go than what is rounded."""
_DECAYS: Final = (0.9, 0.999)
_MAX_OPERATIONS: Final = 1e12
_OPERATIONS_OF_ROUNDING: Final = 200
_SMALLEST_PROBABILITY: Final = 1e-6
_MOVES: Final = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class FineTuned:
    """A model after training, with errors on queries that it was not trained on.

    Attributes:
        model: the float32 ONNX file, to be converted.
        before: error of the outputs without training, converted.
        after: the same with training.
        queries: that were trained on.
    """

    model: bytes
    before: OutputError
    after: OutputError
    queries: int

    @property
    def is_better(self) -> bool:
        """True if training made the error smaller."""
        return self.after.rms_relative < self.before.rms_relative


def can_fine_tune(model: bytes, queries: Queries | None) -> bool:
    """Return whether `fine_tune` takes a model: torch can compute it, and it has queries to learn from."""
    try:
        _check(model, queries)
    except (BackendMissingError, DataError, UnsupportedError):
        return False
    return True


def fine_tune(
    original: bytes,
    model: bytes,
    queries: Queries | None,
    *,
    method: DenseMethod | None = None,
    calibration: Calibration | None = None,
    layers: Collection[str] | None = None,
    seed: int = 0,
) -> FineTuned:
    """Train a model to give the outputs of the original, at most two epochs long.

    Up to 32,768 queries of at most 128 MiB are trained on, fewer of large models (about 1e12 operations), and
    up to 1,024 others are compared on afterwards.

    Args:
        original: the float32 ONNX file whose outputs are to be given.
        model: the float32 ONNX file to train: the original, or what pruning left of it.
        queries: real ones of the model.
        method: that the model will be converted by; None: it stays float32.
        calibration: feeds for the method, where it needs them.
        layers: names of the weights that the method converts; None: all that are worth it.
        seed: of the choice of queries and of their order.

    Raises:
        UnsupportedError: torch cannot compute the model, it has no weights, or there are too few queries.
        GateError: the training diverged.
        DataError: a weight, or a number in the feeds, is not finite.
        BackendMissingError: the package torch is missing.
    """
    queries = _check(model, queries)
    roundings = {} if method is None else method.roundings(model, calibration, layers)
    learned, held_out = _divided(queries, seed)
    with _one_thread():
        from graphbox.compress.dense.rounded_module import RoundedModule

        module = RoundedModule(model, roundings)
        rate = _RATE if model == original else _RATE_OF_PRUNED
        _train(module, _Answers(original, learned), rate, seed, is_rounded=bool(roundings))
        tuned = module.onnx()

    def error(candidate: bytes) -> OutputError:
        converted = candidate if method is None else method.convert(candidate, calibration, layers).model
        return output_error(original, converted, held_out)

    return FineTuned(tuned, error(model), error(tuned), learned.rows)


def _check(model: bytes, queries: Queries | None) -> Queries:
    """Return the queries, if a model can be trained on them."""
    count = 0 if queries is None else queries.count
    if queries is None or count < LEAST_QUERIES:
        raise UnsupportedError(
            f"expected a model with at least {LEAST_QUERIES} queries to be trained on, received {count}",
            hint="compress it without training",
        )
    try:
        from graphbox.export.onnx_to_torch import OnnxModule
    except ImportError as error:
        raise missing_extra("torch", "train") from error
    OnnxModule(model)
    if not Graph(model).products():
        raise UnsupportedError("expected a model with matrix products to train the weights of, received none")
    return queries


def _divided(queries: Queries, seed: int) -> tuple[Calibration, Calibration]:
    """Return queries to learn from, and others to compare on."""
    order = np.random.default_rng(seed).permutation(queries.count)
    held_out = min(queries.count // _HELD_OUT_SHARE, _MAX_HELD_OUT)
    parts = order[:-held_out][:_MAX_QUERIES], order[-held_out:]
    learned, compared = (
        Calibration.of_queries(queries, part, batch=_BATCH, max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES)
        for part in parts
    )
    return learned, compared


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute on one thread: sums are then added up in one order, however many there may be."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Answers:
    """Outputs of the original for feeds, as tensors, and the distance of other outputs from them.

    Probabilities, which a Sigmoid or a Softmax gives, are compared by their cross-entropy, other outputs by
    the mean squared error relative to their variance.
    """

    def __init__(self, original: bytes, feeds: Calibration) -> None:
        import torch

        self.feeds = [{name: torch.tensor(array) for name, array in feed.items()} for feed in feeds.feeds]
        with open_on_cpu(original) as program:
            outputs = outputs_of(program, feeds)
        self._operators = _last_operators(original)
        self._scales = _variances(outputs)
        if not self._scales:
            raise UnsupportedError("expected an output of float32 numbers to be learned, received none")
        self._outputs = [{name: torch.tensor(each[name]) for name in self._scales} for each in outputs]

    def loss(self, number: int, received: Mapping[str, Tensor]) -> Tensor:
        """Return how far the outputs for a feed are from the original's."""
        parts = [self._loss(name, received[name], self._outputs[number][name]) for name in self._scales]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _loss(self, name: str, received: Tensor, expected: Tensor) -> Tensor:
        operator = self._operators.get(name)
        if operator not in {"Sigmoid", "Softmax"}:
            return (received - expected).square().mean() / self._scales[name]
        largest = 1 - _SMALLEST_PROBABILITY
        log = received.clamp(_SMALLEST_PROBABILITY, largest).log()
        if operator == "Softmax":
            return -(expected * log).sum(-1).mean()
        log_of_rest = (1 - received).clamp(_SMALLEST_PROBABILITY, largest).log()
        return -(expected * log + (1 - expected) * log_of_rest).mean()


def _last_operators(model: bytes) -> dict[str, str]:
    """Return the operator that computes each output; reshapes after it do not count."""
    graph = Graph(model)
    by_output = {name: node for node in graph.nodes for name in node.output}
    found = {}
    for output in graph.outputs():
        node = by_output.get(output)
        while node is not None and node.op_type in _MOVES:
            node = by_output.get(node.input[0])
        if node is not None:
            found[output] = node.op_type
    return found


def _variances(outputs: list[Values]) -> dict[str, float]:
    """Return the variance of each float32 output, the mean over its columns; 1 where it is constant."""
    found = {}
    for name, first in outputs[0].items():
        if first.dtype == np.float32:
            rows = np.concatenate([each[name].reshape(len(each[name]), -1) for each in outputs])
            found[name] = float(rows.var(axis=0, dtype=np.float64).mean()) or 1.0
    return found


def _train(module: RoundedModule, answers: _Answers, rate: float, seed: int, *, is_rounded: bool) -> None:
    """Train by Adam, with steps that fall to zero."""
    order = _order(module, answers, seed, is_rounded=is_rounded)
    optimizer = _Adam(module, rate)
    for step, number in enumerate(order):
        feed = answers.feeds[number]
        outputs = module(*(feed[name] for name in module.input_names))
        loss = answers.loss(number, dict(zip(module.output_names, outputs, strict=True)))
        if not math.isfinite(loss.item()):
            raise GateError(
                f"expected a finite loss in training, received {loss.item()} at step {step}",
                hint="compress the model without training",
            )
        module.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(1 - step / len(order))


class _Adam:
    """Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015).

    torch.optim imports torch's compiler, which takes 180 MB and seconds.

    Args:
        module: its weights are changed; the step of each is relative to its size, that of a bias to the size
            of its product's weight.
        rate: of the steps, relative to the root mean square of a weight.
    """

    def __init__(self, module: RoundedModule, rate: float) -> None:
        self._weights = list(module.weights.values())
        sizes = {
            name: float(weight.detach().square().mean().sqrt()) for name, weight in module.weights.items()
        }
        self._rates = [rate * sizes[module.biases.get(name, name)] for name in module.weights]
        self._means = [weight.detach().new_zeros(weight.shape) for weight in self._weights]
        self._squares = [weight.detach().new_zeros(weight.shape) for weight in self._weights]
        self._steps = 0

    def step(self, factor: float) -> None:
        """Change the weights by their gradients.

        Args:
            factor: of the learning rates.
        """
        self._steps += 1
        (decay, decay_of_squares), epsilon = _DECAYS, 1e-8
        states = zip(self._weights, self._rates, self._means, self._squares, strict=True)
        for weight, rate, mean, square in states:
            gradient = weight.grad
            if gradient is None:  # nothing that is learned depends on it
                continue
            mean.mul_(decay).add_(gradient, alpha=1 - decay)
            square.mul_(decay_of_squares).addcmul_(gradient, gradient, value=1 - decay_of_squares)
            root = (square / (1 - decay_of_squares**self._steps)).sqrt_().add_(epsilon)
            weight.data.addcdiv_(mean, root, value=-factor * rate / (1 - decay**self._steps))


def _order(module: RoundedModule, answers: _Answers, seed: int, *, is_rounded: bool) -> list[int]:
    """Return the number of the feed for each step, as many as the bound on operations allows."""
    weights = sum(parameter.numel() for parameter in module.weights.values())
    rows = sum(
        max((len(array) for array in feed.values() if array.ndim), default=1) for feed in answers.feeds
    )
    feeds = len(answers.feeds)
    # Forward pass and both gradients: a multiplication and an addition for each weight and row.
    operations = weights * (6 * rows + (_OPERATIONS_OF_ROUNDING * feeds if is_rounded else 0))
    most = max(1, int(_MAX_OPERATIONS / _EPOCHS / max(operations, 1) * feeds))
    generator = np.random.default_rng(seed)
    return [int(number) for _ in range(_EPOCHS) for number in generator.permutation(feeds)[:most]]
