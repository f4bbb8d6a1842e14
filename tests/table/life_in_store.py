"""Lives of several tables in one store."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

import numpy as np

from graphbox.table import EmbeddingTable, TableStore
from graphbox.table.arguments import DType, Optimizer
from tests.table.life import Life, Operation, check_equal
from tests.table.vector_reference import VectorTable


@dataclass(frozen=True, slots=True)
class Member:
    """A table of a store, and what it is compared with."""

    table: EmbeddingTable
    twin: EmbeddingTable
    model: VectorTable
    dim: int
    optimizer: Optimizer
    dtype: DType


class LifeInStore(Life):
    """What happens to several tables that are saved together."""

    key_count = 300
    memory_bytes = 256 << 20

    def new_table(self) -> EmbeddingTable:
        self.store_folder = self.path("store")
        self.store = TableStore(self.store_folder, memory_bytes=self.memory_bytes, threads=2)
        self.members: dict[str, Member] = {}
        return self.created("first")

    def created(self, name: str) -> EmbeddingTable:
        """Add a table to the store, with the settings that were drawn last."""
        settings = {key: value for key, value in self.settings().items() if key != "threads"}
        return self.store.create(name, self.dim, optimizer=self.optimizer, share=2.0, **settings)

    def operations(self) -> dict[Operation, float]:
        kept = (self.pull, self.push, self.erase, self.contains, self.refused_gradients, self.go_through)
        weights = super().operations()
        more: dict[Operation, float] = {
            self.create: 0.5,
            self.remove: 0.4,
            self.save: 0.3,
            self.save_and_open: 0.3,
            self.lose_what_was_not_saved: 0.3,
        }
        return {**{operation: weights[operation] for operation in kept}, **more}

    def turn(self) -> None:
        """Let the next operation happen to one of the tables."""
        if not self.members:
            self.members["first"] = self.member()
        self.choose(str(self.rng.choice(list(self.members))))

    def member(self) -> Member:
        return Member(self.table, self.twin, self.model, self.dim, self.optimizer, self.dtype)

    def choose(self, name: str) -> None:
        chosen = self.members[name]
        self.table, self.twin, self.model = chosen.table, chosen.twin, chosen.model
        self.dim, self.optimizer, self.dtype = chosen.dim, chosen.optimizer, chosen.dtype

    def check_figures(self) -> None:
        super().check_figures()
        assert list(self.store) == list(self.members)
        assert self.store.nbytes <= self.memory_bytes

    def check_rows(self) -> None:
        for name in self.members:
            self.choose(name)
            super().check_rows()

    def create(self) -> None:
        if len(self.members) == 5:
            return self.remove()
        name = self.path("table").name
        self.draw_settings()
        self.model = self.new_model(int(self.rng.integers(2**63)))
        self.table, self.twin = self.created(name), self.new_twin()
        self.members[name] = self.member()
        return None

    def remove(self) -> None:
        if len(self.members) > 1:
            name = str(self.rng.choice(list(self.members)))
            self.store.remove(name)
            del self.members[name]
            self.turn()

    def save(self) -> None:
        self.store.save()

    def save_and_open(self) -> None:
        self.store.save()
        self.store.close()
        self.store = TableStore(self.store_folder, memory_bytes=self.memory_bytes, threads=1)
        self.members = {
            name: replace(member, table=self.store[name]) for name, member in self.members.items()
        }
        self.turn()

    def lose_what_was_not_saved(self) -> None:
        """Open a copy of the folder, as a process that is killed leaves it."""
        self.store.save()
        keys = {name: member.model.keys() for name, member in self.members.items()}
        rows = {name: member.twin.pull(keys[name], create=False) for name, member in self.members.items()}
        for _ in range(self.rng.integers(12)):
            self.turn()
            (self.pull, self.push, self.erase)[self.rng.integers(3)]()
        copy = self.path("copy")
        shutil.copytree(self.store_folder, copy)
        with TableStore(copy, memory_bytes=self.memory_bytes, threads=1) as store:
            assert list(store) == list(keys)
            for name in store:
                check_equal(np.sort(store[name].keys()), keys[name])
                check_equal(store[name].pull(keys[name], create=False), rows[name])
        shutil.rmtree(copy)

    def end(self) -> None:
        self.store.close()
