"""Rows that the workers of a server have in common: once in memory, whatever happens to workers and files."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import ArtifactWriter, LookupForm, TargetSpec
from tests.server.server_process import ServerProcess, StartServer, wait_until
from tests.server.test_workers import runs, wait_until_all_ready, workers_of

DIM = 64
SHARED = "/memfd:graphbox-copy"
START_OF_LARGE_S = 120.0


def write_rows(path: Path, rows: int, *, version: int = 1) -> int:
    """Write a model of rows that tell their number and version; return the bytes of its table."""
    values = np.zeros((rows, DIM), np.float32)
    values[:, 0], values[:, 1] = np.arange(rows), version
    with ArtifactWriter(path) as writer:
        writer.add_ids("item", np.arange(rows))
        writer.add_table("item", "item", values)
        writer.set_preprocess(LookupForm(node_type="item", tables={"item": "item"}))
        targets = {"item": TargetSpec(table="item", score="inner_product")}
        writer.commit(name="rows", version=version, kind="embedding", task="t", dim=DIM, targets=targets)
    return values.nbytes


def embedding(server: ServerProcess, number: int) -> list[float]:
    """Return the start of a row, asked on a connection of its own."""
    body = {"inputs": [{"name": "id", "datatype": "INT64", "shape": [1], "data": [number]}]}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("POST", "/v2/models/rows/infer", json.dumps(body))
        answer = connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status == 200, content
    start: list[float] = content["outputs"][0]["data"][:2]
    return start


def check_answers(server: ServerProcess, rows: int, version: int = 1) -> None:
    for number in np.linspace(0, rows - 1, 30).astype(int).tolist():
        assert embedding(server, number) == [number, version]


def wait_until_large_is_ready(server: ServerProcess, workers: int) -> None:
    wait_until(lambda: len(workers_of(server)) == workers, what="the workers")
    wait_until(server.is_ready, START_OF_LARGE_S, "the first worker to be ready")
    wait_until_all_ready(server)


def mapped_bytes(pid: int) -> dict[str, int]:
    """Return ``Rss`` and ``Pss`` of the shared copies in a process, and all of its anonymous memory."""
    found = {"Rss": 0, "Pss": 0, "Anonymous": 0}
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        field, _, value = line.partition(":")
        if field in found and (field == "Anonymous" or name.startswith(SHARED)):
            found[field] += int(value.split()[0]) * 1024
        elif "-" in field:
            name = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) == 6 else ""
    return found


def copies_of(server: ServerProcess) -> list[int]:
    """Return the sizes of the copies that the parent has."""
    sizes = []
    for each in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(each).startswith(SHARED):  # noqa: PTH115 - the target is no path
                sizes.append(each.stat().st_blocks * 512)
    return sizes


def test_rows_are_in_memory_once(start_server: StartServer, tmp_path: Path) -> None:
    rows = 800_000
    table_bytes = write_rows(tmp_path / "models" / "rows" / "1", rows)
    assert table_bytes > 200e6
    server = start_server(models=[tmp_path / "models"], workers=3)
    wait_until_large_is_ready(server, 3)
    check_answers(server, rows)
    found = [mapped_bytes(pid) for pid in workers_of(server)]
    assert len(found) == 3
    assert all(each["Rss"] >= table_bytes for each in found), "all of them map the whole table"
    assert table_bytes <= sum(each["Pss"] for each in found) < 1.3 * table_bytes
    assert all(each["Anonymous"] < table_bytes for each in found), "none has a copy of its own"
    assert server.stop() == 0


def test_files_of_models_are_not_needed_any_more(start_server: StartServer, tmp_path: Path) -> None:
    rows = 50_000
    models = tmp_path / "models"
    write_rows(models / "rows" / "1", rows)
    server = start_server(models=[models], workers=2, follow=False)
    wait_until_all_ready(server)
    for file in (models / "rows" / "1").rglob("*.*"):
        os.truncate(file, 0)
    check_answers(server, rows)
    for file in (models / "rows" / "1").rglob("*.*"):
        file.unlink()
    check_answers(server, rows)
    assert server.stop() == 0


def kill_a_worker(server: ServerProcess) -> None:
    os.kill(workers_of(server)[0], signal.SIGKILL)


def kill_all_workers(server: ServerProcess) -> None:
    for pid in workers_of(server):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_a_worker, kill_all_workers])
def test_workers_killed_while_they_copy(
    start_server: StartServer, tmp_path: Path, kill: Callable[[ServerProcess], None]
) -> None:
    rows = 400_000
    write_rows(tmp_path / "models" / "rows" / "1", rows)
    server = start_server(models=[tmp_path / "models"], workers=2)
    wait_until(lambda: max(copies_of(server), default=0) > 0, what="a copy that is being made")
    kill(server)
    wait_until_large_is_ready(server, 2)
    check_answers(server, rows)
    assert server.stop() == 0


def test_nothing_is_left_where_the_parent_is_killed(start_server: StartServer, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_rows(models / "rows" / "1", 50_000)
    files = sorted(models.rglob("*"))
    server = start_server(models=[models], workers=2)
    wait_until_all_ready(server)
    workers = workers_of(server)
    assert copies_of(server)
    server.process.kill()
    wait_until(lambda: not any(map(runs, workers)), what="the workers to end")
    assert sorted(models.rglob("*")) == files


def test_memory_of_replaced_versions_is_given_back(start_server: StartServer, tmp_path: Path) -> None:
    """The first versions are opened at the start, the others while the server runs."""
    rows = 200_000
    models = tmp_path / "models"
    table_bytes = write_rows(models / "rows" / "1", rows)
    server = start_server(models=[models], workers=2)
    wait_until_all_ready(server)
    of_one = sum(copies_of(server))
    assert of_one > table_bytes
    for version in (2, 3, 4, 5):
        write_rows(models / "rows" / str(version), rows, version=version)

        def answers(version: int = version) -> bool:
            return all(embedding(server, 7) == [7, version] for _ in range(10))

        wait_until(answers, 60, f"version {version} in both workers")
    check_answers(server, rows, 5)
    limit = of_one + table_bytes // 2  # ids of integers are the same in all versions

    def is_given_back() -> bool:
        mapped = [mapped_bytes(pid)["Rss"] for pid in workers_of(server)]
        return sum(copies_of(server)) < limit and max(mapped) < limit

    wait_until(is_given_back, 60, "the memory of the versions before")
    assert server.stop() == 0


def test_a_killed_worker_takes_up_the_copy(start_server: StartServer, tmp_path: Path) -> None:
    rows = 50_000
    write_rows(tmp_path / "models" / "rows" / "1", rows)
    server = start_server(models=[tmp_path / "models"], workers=2)
    wait_until_all_ready(server)
    before = copies_of(server)
    first = workers_of(server)
    os.kill(first[0], signal.SIGKILL)
    wait_until(lambda: len(set(workers_of(server)) - set(first)) == 1, what="the next worker")
    wait_until_all_ready(server)
    check_answers(server, rows)
    assert sorted(copies_of(server)) == sorted(before)
    assert server.stop() == 0


def test_one_worker_has_private_copies(start_server: StartServer, tmp_path: Path) -> None:
    rows = 50_000
    write_rows(tmp_path / "models" / "rows" / "1", rows)
    server = start_server(models=[tmp_path / "models"])
    server.wait_until_ready()
    check_answers(server, rows)
    found: dict[str, Any] = mapped_bytes(server.process.pid)
    assert found["Rss"] == 0
    assert server.stop() == 0
