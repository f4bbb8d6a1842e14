"""Tables of this process, asked of tables of all kinds; of several processes in distributed_checks."""

from __future__ import annotations

import pytest
import torch

from graphbox.errors import UnsupportedError
from graphbox.table import DeviceTable, EmbeddingTable, TableEmbedding
from graphbox.table.host_table import host_table


class Elsewhere:
    """A table that has its rows in other processes, as far as this one is concerned."""

    def __repr__(self) -> str:
        return "Elsewhere('users')"


def test_a_table_of_this_process_is_its_own() -> None:
    table = EmbeddingTable(2)
    assert host_table(table, "a test") is table


def test_a_table_of_other_processes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"in this process for a test, received Elsewhere\('users'\)"):
        host_table(Elsewhere(), "a test")  # type: ignore[arg-type]


@pytest.mark.gpu_kernel
def test_rows_on_a_device_are_kept_by_the_table_below() -> None:
    table = EmbeddingTable(2)
    with DeviceTable(table, "cpu", hbm_bytes=1 << 20) as near:
        near.push(torch.arange(5), torch.ones(5, 2))
        assert host_table(near, "a test") is table
        assert TableEmbedding(near).state_dict()["_extra_state"] == [table.reference()]
    assert host_table(near, "a test") is table
