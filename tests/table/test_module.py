"""The torch module over a table: trains its rows as torch trains an embedding."""

import gc
import weakref

import pytest
import torch

from graphbox.table import EmbeddingTable, TableEmbedding


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
    module = TableEmbedding(EmbeddingTable(3))
    assert module(torch.tensor(4)).shape == (3,)
    assert module(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 3)
    rows = module(torch.arange(8).reshape(2, 4).T)
    assert rows.shape == (4, 2, 3)
    rows.sum().backward()
    assert len(module.table) == 8


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


def test_holds_no_parameters_and_no_state() -> None:
    module = TableEmbedding(EmbeddingTable(3))
    module(torch.tensor([1]))
    assert list(module.parameters()) == []
    assert module.state_dict() == {}
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
