"""SASRec, GRU4Rec and ComiRec beside their equations in plain NumPy, one sequence and one event at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.models.comirec import ComiRec
from graphbox.models.gru4rec import GRU4Rec
from graphbox.models.sasrec import AttentionBlock, SASRec
from graphbox.models.sequence_blocks import SequenceNetwork, closest_vectors

Floats = NDArray[np.float64]

DIM, HIDDEN, WINDOW, INTERESTS = 12, 10, 9, 3


def array(values: torch.Tensor) -> Floats:
    return values.detach().double().numpy()


def linear(layer: torch.nn.Linear, x: Floats) -> Floats:
    return x @ array(layer.weight).T + array(layer.bias)


def normed(layer: torch.nn.LayerNorm, x: Floats) -> Floats:
    centred = x - x.mean()
    found: Floats = centred / np.sqrt((centred**2).mean() + layer.eps) * array(layer.weight) + array(
        layer.bias
    )
    return found


def gelu(x: Floats) -> Floats:
    return np.array([0.5 * each * (1.0 + math.erf(each / math.sqrt(2.0))) for each in x])


def sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


def attended(block: AttentionBlock, hidden: Sequence[Floats], event: int) -> Floats:
    """Return what an event of a sequence becomes in a block, of the events up to it."""
    heads, width = block.heads, DIM // block.heads
    parts = [linear(block.queries_keys_values, normed(block.attention_norm, x)) for x in hidden[: event + 1]]
    query = parts[event][:DIM].reshape(heads, width)
    keys = np.stack([part[DIM : 2 * DIM].reshape(heads, width) for part in parts])
    values = np.stack([part[2 * DIM :].reshape(heads, width) for part in parts])
    seen = []
    for head in range(heads):
        weight = np.exp(keys[:, head] @ query[head] / math.sqrt(width))
        seen.append((weight / weight.sum()) @ values[:, head])
    x = hidden[event] + linear(block.attended, np.concatenate(seen))
    return np.asarray(x + linear(block.second, gelu(linear(block.first, normed(block.layers_norm, x)))))


def plain_sasrec(network: SASRec, sequence: Floats) -> Floats:
    """Return the vector of each event of one sequence: [L, dim]."""
    hidden = list(sequence + array(network.positions)[: len(sequence)])
    for block in network.blocks:
        assert isinstance(block, AttentionBlock)
        hidden = [attended(block, hidden, event) for event in range(len(hidden))]
    return np.stack([normed(network.norm, x) for x in hidden])


def plain_gru4rec(network: GRU4Rec, sequence: Floats) -> Floats:
    """Return the vector of each event of one sequence: [L, dim]."""
    layer = network.recurrent
    input_weight, hidden_weight, input_bias, hidden_bias = (
        array(getattr(layer, name)) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    )
    state, found = np.zeros(HIDDEN), []
    for x in sequence:
        of_input, of_state = input_weight @ x + input_bias, hidden_weight @ state + hidden_bias
        reset = sigmoid(of_input[:HIDDEN] + of_state[:HIDDEN])
        update = sigmoid(of_input[HIDDEN : 2 * HIDDEN] + of_state[HIDDEN : 2 * HIDDEN])
        new = np.tanh(of_input[2 * HIDDEN :] + reset * of_state[2 * HIDDEN :])
        state = (1.0 - update) * new + update * state
        found.append(linear(network.output, state))
    return np.stack(found)


def plain_comirec(network: ComiRec, sequence: Floats) -> Floats:
    """Return the vectors of each event of one sequence, each prefix by itself: [L, interests * dim]."""
    found = []
    for length in range(1, len(sequence) + 1):
        prefix = sequence[:length]
        placed = prefix + array(network.positions)[:length]
        logits = np.tanh(linear(network.first, placed)) @ array(network.second.weight).T
        weight = np.exp(np.clip(logits - logits[0], -60.0, 60.0))  # a softmax, unless one is beyond that
        found.append((weight / weight.sum(axis=0)).T @ prefix)
    return np.stack(found).reshape(len(sequence), -1)


def make(kind: str) -> SequenceNetwork:
    torch.manual_seed(4)
    network: SequenceNetwork
    if kind == "gru4rec":
        network = GRU4Rec(DIM, HIDDEN, dropout=0.5)
    elif kind == "comirec":
        network = ComiRec(DIM, WINDOW, interests=INTERESTS, hidden=HIDDEN, dropout=0.5)
    else:
        network = SASRec(DIM, WINDOW, layers=2, heads=int(kind[-1]), dropout=0.5)
    for parameter in network.parameters():  # biases and scales too, which start at zero and one
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network.eval()


def plain(network: SequenceNetwork, sequence: Floats) -> Floats:
    if isinstance(network, GRU4Rec):
        return plain_gru4rec(network, sequence)
    if isinstance(network, ComiRec):
        return plain_comirec(network, sequence)
    assert isinstance(network, SASRec)
    return plain_sasrec(network, sequence)


every_kind = pytest.mark.parametrize("kind", ["sasrec-1", "sasrec-3", "gru4rec", "comirec"])


@every_kind
def test_vectors_are_those_of_the_equations(kind: str) -> None:
    network, shapes = make(kind), [(2, 1), (3, 4), (1, WINDOW)]
    rows = torch.randn(sum(count * length for count, length in shapes), DIM)
    with torch.no_grad():
        found = network(rows, shapes).numpy()
    place = 0
    for count, length in shapes:
        for _ in range(count):
            own = slice(place, place + length)
            expected = plain(network, array(rows[own]))
            np.testing.assert_allclose(found[own], expected, rtol=1e-4, atol=1e-5)
            place += length


@every_kind
def test_later_events_and_padding_change_nothing(kind: str) -> None:
    network = make(kind)
    rows = torch.randn(2 * WINDOW, DIM)
    with torch.no_grad():
        whole = network(rows, [(2, WINDOW)])
        for length in range(1, WINDOW):
            others = rows.clone().view(2, WINDOW, DIM)
            others[:, length:] = 7.0 * torch.randn(2, WINDOW - length, DIM)
            changed = network(others.view(-1, DIM), [(2, WINDOW)])
            np.testing.assert_array_equal(
                whole.view(2, WINDOW, -1)[:, :length], changed.view(2, WINDOW, -1)[:, :length]
            )


@every_kind
def test_dropout_is_of_training_alone(kind: str) -> None:
    network, rows = make(kind), torch.randn(12, DIM)
    with torch.no_grad():
        assert torch.equal(network(rows, [(3, 4)]), network(rows, [(3, 4)]))
        network.train()
        assert not torch.equal(network(rows, [(3, 4)]), network(rows, [(3, 4)]))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_interests_are_finite_for_logits_of_any_size(scale: float) -> None:
    """Sums of exponents neither overflow nor vanish, nor do their gradients, whichever event comes first."""
    network = make("comirec")
    assert isinstance(network, ComiRec)
    network.second.weight.data *= scale
    rows = torch.randn(20 * WINDOW, DIM, requires_grad=True)
    found = network(rows, [(20, WINDOW)])
    found.square().sum().backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in network.parameters())
    expected = np.concatenate([plain_comirec(network, each) for each in array(rows).reshape(20, WINDOW, DIM)])
    if scale < 1e3:  # beyond it float32 has no digits left for differences of logits
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-3, atol=1e-4)
    # Means of rows, whatever the weights.
    several = array(rows).reshape(20, WINDOW, 1, DIM)
    lowest, highest = (each.accumulate(several, axis=1) for each in (np.minimum, np.maximum))
    interests = array(found).reshape(20, WINDOW, INTERESTS, DIM)
    assert (interests >= lowest - 1e-5).all()
    assert (interests <= highest + 1e-5).all()


def test_the_closest_vector_is_the_one_with_the_largest_inner_product() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(40, INTERESTS * DIM, requires_grad=True)
    rows = torch.randn(40, DIM, requires_grad=True)
    found = closest_vectors(vectors, rows)
    best = []
    for event in range(40):
        several = array(vectors[event]).reshape(INTERESTS, DIM)
        best.append(int(np.argmax(several @ array(rows[event]))))
        np.testing.assert_array_equal(array(found[event]), several[best[-1]])
    assert len(set(best)) == INTERESTS
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert vectors.grad is not None
    expected = np.zeros((40, INTERESTS, DIM))
    expected[np.arange(40), best] = 1.0
    np.testing.assert_array_equal(array(vectors.grad).reshape(expected.shape), expected)
    assert rows.grad is None
    assert closest_vectors(rows, vectors[:, :DIM]) is rows
