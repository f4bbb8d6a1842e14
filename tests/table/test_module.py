"""The torch module over a table: trains its rows as torch trains an embedding."""

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphbox.errors import ConflictError, DataError, UnsupportedError, UsageError
from graphbox.table import EmbeddingTable, TableEmbedding, TableEmbeddingBag, TableOptimizer


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_trains_as_a_torch_embedding_does() -> None:
    torch.manual_seed(0)
    table = EmbeddingTable(8, "sgd", lr=0.1)
    module = TableEmbedding(table)
    embedding = torch.nn.Embedding(20, 8)
    embedding.weight.data.copy_(table.pull(torch.arange(20)))
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    head = torch.nn.Linear(8, 1)
    for _ in range(10):
        keys = torch.randint(0, 20, (4, 6))  # with duplicates
        optimizer.zero_grad()
        for lookup in (module, embedding):
            head(lookup(keys)).pow(2).sum().backward()
        optimizer.step()
    torch.testing.assert_close(table.pull(torch.arange(20)), embedding.weight.data, rtol=1e-5, atol=1e-6)


def test_each_forward_pass_is_pushed_once() -> None:
    table = EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0)
    module = TableEmbedding(table)
    rows = module(torch.tensor([5, 5, 6]))
    (rows * 2 + rows.exp()).sum().backward()  # used twice: one push with the whole gradient, 2 + e^0
    assert table.pull([5, 6]).tolist() == [[-6, -6], [-3, -3]]
    first, second = module(torch.tensor([7])), module(torch.tensor([7]))
    (first.sum() + second.sum()).backward()
    assert table.pull([7]).tolist() == [[-2, -2]]


def test_keys_of_any_shape() -> None:
    table = EmbeddingTable(3)
    module = TableEmbedding(table)
    assert module(torch.tensor(4)).shape == (3,)
    assert module(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 3)
    rows = module(torch.arange(8).reshape(2, 4).T)
    assert rows.shape == (4, 2, 3)
    rows.sum().backward()
    assert len(table) == 8


def test_evaluation_leaves_the_table_as_it_is() -> None:
    table = EmbeddingTable(3)
    module = TableEmbedding(table)
    training = EmbeddingTable(3).pull(torch.tensor([9]))
    module.eval()
    rows = module(torch.tensor([9]))
    assert not rows.requires_grad
    assert torch.equal(rows, training)
    module.train()
    with torch.no_grad():
        assert torch.equal(module(torch.tensor([9])), training)
    assert len(table) == 0


def test_holds_no_parameters_and_no_rows() -> None:
    module = TableEmbedding(EmbeddingTable(3))
    module(torch.tensor([1]))
    assert list(module.parameters()) == []
    assert list(module.state_dict()) == ["_extra_state"]
    assert "rows=1" in repr(module)


def test_nothing_keeps_the_table_alive() -> None:
    table = EmbeddingTable(3)
    rows = TableEmbedding(table)(torch.tensor([1]))
    rows.sum().backward()
    alive = weakref.ref(table)
    del table, rows
    gc.collect()
    assert alive() is None


def test_input_of_a_network_stays_a_leaf_for_it() -> None:
    table = EmbeddingTable(3, "sgd", lr=1.0)
    module = TableEmbedding(table)
    rows = module(torch.tensor([1]))
    before = table.pull([1]).copy()
    (gradient,) = torch.autograd.grad(rows.sum(), rows)  # asked for, not applied
    assert gradient.tolist() == [[1, 1, 1]]
    assert table.pull([1]).tolist() == before.tolist()


# --- As torch.nn.Embedding with an optimizer of torch -------------------------------------------------------

Step = Callable[[Callable[[Tensor], Tensor], list[Tensor], Tensor], None]


def twice_in_one_forward(lookup: Callable[[Tensor], Tensor], keys: list[Tensor], head: Tensor) -> None:
    ((lookup(keys[0]) * lookup(keys[1])) @ head).square().sum().backward()  # type: ignore[no-untyped-call]


def micro_batches(lookup: Callable[[Tensor], Tensor], keys: list[Tensor], head: Tensor) -> None:
    for each in keys:
        (lookup(each) @ head).square().sum().backward()  # type: ignore[no-untyped-call]


def retained_graph(lookup: Callable[[Tensor], Tensor], keys: list[Tensor], head: Tensor) -> None:
    loss = (lookup(keys[0]) @ head).square().sum()
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]


def recomputed(lookup: Callable[[Tensor], Tensor], keys: list[Tensor], head: Tensor) -> None:
    rows = lookup(keys[0])
    again = checkpoint(lambda key: lookup(key).sin(), keys[1], use_reentrant=False)
    ((rows * again) @ head).square().sum().backward()


def gradient_penalty(lookup: Callable[[Tensor], Tensor], keys: list[Tensor], head: Tensor) -> None:
    rows = lookup(keys[0])
    loss = (rows @ head).square().sum()
    (gradient,) = torch.autograd.grad(loss, rows, create_graph=True)
    (loss + gradient.square().sum()).backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
@pytest.mark.parametrize(
    "step", [twice_in_one_forward, micro_batches, retained_graph, recomputed, gradient_penalty]
)
def test_steps_of_the_table_optimizer(step: Step, optimizer: str) -> None:
    table = EmbeddingTable(8, optimizer, lr=0.1)  # type: ignore[arg-type]
    embedding = torch.nn.Embedding(20, 8)
    embedding.weight.data.copy_(table.pull(torch.arange(20)))
    parameters = list(embedding.parameters())
    peer = (
        torch.optim.SGD(parameters, 0.1)
        if optimizer == "sgd"
        else torch.optim.Adagrad(parameters, 0.1, eps=1e-8)
    )
    module = TableEmbedding(table)
    ours = TableOptimizer(module)
    generator = torch.Generator().manual_seed(3)
    head = torch.randn(8, generator=generator)
    for _ in range(4):
        keys = [torch.randint(0, 20, (3, 5), generator=generator) for _ in range(2)]
        peer.zero_grad()
        step(embedding, keys, head)
        step(module, keys, head)
        peer.step()
        ours.step()
    torch.testing.assert_close(table.pull(torch.arange(20)), embedding.weight.data)


def test_a_backward_pass_is_one_update_of_each_row() -> None:
    tables = [EmbeddingTable(4, "adagrad", lr=0.1) for _ in range(2)]
    one, two = torch.tensor([1, 2, 2]), torch.tensor([2, 3, 4])
    module, other = TableEmbedding(tables[0]), TableEmbeddingBag(tables[0], "sum")
    (module(one).sin().sum() + other(two.reshape(1, 3)).cos().sum() + module(two).exp().sum()).backward()
    rows = TableEmbedding(tables[1])(torch.cat([one, two]))
    (rows[:3].sin().sum() + rows[3:].sum(0).cos().sum() + rows[3:].exp().sum()).backward()
    keys = torch.arange(5)
    torch.testing.assert_close(tables[0].pull(keys), tables[1].pull(keys))


def test_a_backward_pass_that_fails_teaches_nothing() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, rows: Tensor) -> Tensor:
            return rows.clone()

        @staticmethod
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            raise RuntimeError("no")

    table = EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0)
    module = TableEmbedding(table)
    dense = torch.zeros(2, 2, requires_grad=True)
    rows = module(torch.tensor([1, 2]))  # its gradient is there before the other one fails
    with pytest.raises(RuntimeError, match="no"):
        (Fails.apply(dense).sum() + rows.sum()).backward()  # type: ignore[no-untyped-call]
    module(torch.tensor([2])).sum().backward()
    assert table.pull([1, 2]).tolist() == [[0, 0], [-1, -1]]


def test_gradients_can_be_dropped() -> None:
    table = EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0)
    module = TableEmbedding(table)
    optimizer = TableOptimizer(module)
    with pytest.raises(ConflictError, match="one TableOptimizer"):
        TableOptimizer(module)
    module(torch.tensor([1])).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
    assert table.pull([1]).tolist() == [[0, 0]]
    optimizer.close()
    module(torch.tensor([1])).sum().backward()
    assert table.pull([1]).tolist() == [[-1, -1]]
    with pytest.raises(UsageError, match="received none"):
        TableOptimizer(torch.nn.Linear(1, 1))


def test_rows_erased_between_forward_and_backward_start_anew() -> None:
    table = EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0)
    module = TableEmbedding(table)
    for keys in (torch.tensor([1]), torch.tensor([1, 2])):
        (module(keys).sum() + module(keys).sum()).backward()
    rows = module(torch.tensor([1, 2]))
    table.erase([1])
    module(torch.tensor([3]))  # takes the memory of the erased row
    rows.sum().backward()
    assert table.pull([1, 2, 3]).tolist() == [[-1, -1], [-3, -3], [0, 0]]


def test_gradients_that_are_not_finite_reach_the_caller() -> None:
    table = EmbeddingTable(2)
    before = table.pull([5, 6]).copy()
    rows = TableEmbedding(table)(torch.tensor([5, 6]))
    with pytest.raises(DataError, match="key 6"):
        (rows * torch.tensor([[1.0], [torch.nan]])).sum().backward()
    assert (table.pull([5, 6]) == before).all()


def test_padding_gives_zeros_and_gets_no_row() -> None:
    table = EmbeddingTable(4, "adagrad")
    embedding = torch.nn.Embedding(9, 4, padding_idx=7)
    embedding.weight.data.copy_(table.pull(torch.arange(9)))
    embedding.weight.data[7] = 0
    table.erase([7])
    keys = torch.tensor([[7, 1, 2], [7, 7, 2]])
    rows = TableEmbedding(table, padding_idx=7)(keys)
    assert torch.equal(rows, embedding(keys))
    rows.square().sum().backward()
    assert not table.contains([7])[0]
    with pytest.raises(UsageError, match="expected a key"):
        TableEmbedding(table, padding_idx="7")  # type: ignore[arg-type]


def test_copies_are_refused() -> None:
    module = TableEmbedding(EmbeddingTable(2))
    for copied in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(UnsupportedError, match="neither copied nor pickled"):
            copied(torch.nn.Sequential(module) if copied is not copy.copy else module)


@pytest.mark.parametrize("arguments", [(torch.rand(3),), ([1, 2],)])
def test_wrong_keys(arguments: tuple[Tensor]) -> None:
    with pytest.raises(UsageError, match=r"keys: expected"):
        TableEmbedding(EmbeddingTable(2))(*arguments)


def test_wrong_table() -> None:
    with pytest.raises(UsageError, match="an EmbeddingTable"):
        TableEmbedding(torch.nn.Embedding(2, 2))  # type: ignore[arg-type]


# --- state_dict ----------------------------------------------------------------------------------------


def test_a_state_dict_knows_the_table_it_was_made_beside(tmp_path: Path) -> None:
    table = EmbeddingTable(2)
    model = torch.nn.Sequential(TableEmbedding(table), torch.nn.Linear(2, 1))
    model(torch.arange(5)).sum().backward()
    table.save(tmp_path / "saved")
    torch.save(model.state_dict(), tmp_path / "dense")
    state = torch.load(tmp_path / "dense", weights_only=True)
    assert state["0._extra_state"][0]["checkpoint"] == str(tmp_path / "saved")
    model.load_state_dict(state)
    loaded = EmbeddingTable.load(tmp_path / "saved")
    other = torch.nn.Sequential(TableEmbedding(loaded), torch.nn.Linear(2, 1))
    other.load_state_dict(state)
    assert torch.equal(other.state_dict()["1.weight"], state["1.weight"])
    other(torch.arange(5)).sum().backward()
    for wrong in (other, torch.nn.Sequential(TableEmbedding(EmbeddingTable(2)), torch.nn.Linear(2, 1))):
        with pytest.raises(ConflictError, match=r"5 rows.*saved.*another"):
            wrong.load_state_dict(state)
    del state["0._extra_state"]
    other.load_state_dict(state, strict=False)


def test_a_state_dict_beside_rows_that_were_not_saved() -> None:
    module = TableEmbedding(EmbeddingTable(2))
    module.load_state_dict(module.state_dict())
    module(torch.arange(5)).sum().backward()
    state = module.state_dict()
    module.load_state_dict(state)  # nothing changed
    module(torch.arange(5)).sum().backward()
    with pytest.warns(UserWarning, match="in no checkpoint"):
        module.load_state_dict(state)


def test_state_dicts_of_other_modules() -> None:
    module = TableEmbedding(EmbeddingTable(2))
    with pytest.raises(UsageError, match=r"0 rows of 3.*0 rows of 2"):
        module.load_state_dict(TableEmbedding(EmbeddingTable(3)).state_dict())
    for wrong in ({"_extra_state": 5}, {"_extra_state": [5]}, {"_extra_state": [{"dim": 2}]}):
        with pytest.raises(UsageError, match=r"expected (a reference|references)"):
            module.load_state_dict(wrong)


# --- torch.compile -------------------------------------------------------------------------------------


class _Compiled(torch.nn.Module):
    """Computes before and after its lookups."""

    def __init__(self, table: EmbeddingTable) -> None:
        super().__init__()
        self.rows = TableEmbedding(table)
        self.sums = TableEmbeddingBag(table, "sum")
        self.head = torch.nn.Linear(4, 3)

    def forward(self, keys: Tensor) -> Tensor:
        rows = self.rows(keys * 2) + self.sums(keys, torch.arange(len(keys)))
        result: Tensor = torch.relu(self.head(rows))
        return result


# torch hides this warning of its own from users, but not where warnings are errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models_train_as_others(backend: str) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend(backend)
    results = []
    for compiled in (False, True):
        table = EmbeddingTable(4, "adagrad", lr=0.1)
        torch.manual_seed(0)
        model = _Compiled(table)
        run: Any = torch.compile(model, backend=counter) if compiled else model
        for step in range(3):
            run(torch.arange(5) + step).square().sum().backward()
        with torch.no_grad():
            run.eval()(torch.tensor([99]))
        assert len(table) == 10
        results.append((table.pull(table.keys()), model.head.weight.grad))
    assert counter.frame_count >= 2  # what is before the lookups, and what is after them
    assert (results[0][0] == results[1][0]).all()
    torch.testing.assert_close(results[0][1], results[1][1])


def test_torch_compile_is_loaded_where_it_is_used() -> None:
    code = "import sys, graphbox.table.module as _; print('torch._dynamo' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_why_a_graph_is_broken() -> None:
    model = torch.compile(TableEmbedding(EmbeddingTable(2)), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="rows come from a table"):
        model(torch.tensor([1]))
