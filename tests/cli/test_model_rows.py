"""Row updates on the command line: files of each kind, the list, rolling back, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.artifact import Artifact
from graphbox.artifact.row_updates import UpdatesFolder
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.workspace import Workspace
from tests.cli.conftest import Call

ROWS = np.random.default_rng(5).standard_normal((40, 3)).astype(np.float32)
NEW = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(params=["texts", "integers"])
def files(request: pytest.FixtureRequest, folder: Path, graphbox: Call) -> Path:
    """A workspace with the model `words`, and updates of an id that it has and one that it lacks."""
    is_text = request.param == "texts"
    first, second = ("w7", "new") if is_text else ("7", "123")
    np.save(folder / "rows.npy", ROWS)
    (folder / "ids.txt").write_text(
        "".join(f"{'w' if is_text else ''}{number}\n" for number in range(len(ROWS)))
    )
    assert graphbox("models", "add", "words", "rows.npy", "--ids", "ids.txt").code == 0
    (folder / "update.csv").write_text(f"id,a,b,c\n{first},1,2,3\n{second},4,5,6\n")
    (folder / "update.tsv").write_text(f"word\ta\tb\tc\n{first}\t1\t2\t3\n{second}\t4\t5\t6\n")
    table = {"id": [first, second], "vector": NEW.tolist()}
    pq.write_table(
        pa.table(table, pa.schema({"id": pa.string(), "vector": pa.list_(pa.float32())})),
        folder / "update.parquet",
    )
    np.savez(folder / "update.npz", ids=np.array([first, second]), rows=NEW)
    np.save(folder / "update.npy", NEW)
    (folder / "new_ids.txt").write_text(f"{first}\n{second}\n")
    return folder


def rows_served(folder: Path) -> Any:
    """Return rows 7 and 40 of the active update."""
    workspace = Workspace(folder / "workspace", create=False)
    artifact = Artifact.open(workspace.model("words").path)
    updates = UpdatesFolder(artifact.path, artifact.manifest.digest)
    chain = updates.chain(workspace.serving_records().row_sequence("words", 1))[1]
    rows = UpdatedRows.of(artifact).apply([updates.read(each) for each in chain])
    return rows.artifact.table("node").rows([7, 40])


@pytest.mark.parametrize(
    "arguments",
    [
        ("update.csv",),
        ("update.tsv", "--id-column", "word"),
        ("update.parquet",),
        ("update.npz", "--tensor", "rows"),
        ("update.npy", "--ids", "new_ids.txt"),
    ],
)
def test_files_with_rows(graphbox: Call, files: Path, arguments: tuple[str, ...]) -> None:
    done = graphbox("models", "update", "words", *arguments, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["sequence"], document["parent"], document["rows"]) == (1, 0, {"node": 2})
    np.testing.assert_array_equal(rows_served(files), NEW)


def test_list_and_rolling_back(graphbox: Call, files: Path) -> None:
    assert "has no row updates" in graphbox("models", "updates", "words").out
    for _ in range(3):
        assert graphbox("models", "update", "words", "update.csv").code == 0
    done = graphbox("models", "updates", "words", "--roll-back-to", "2")
    assert "row update 2 is active, before it 3" in done.out
    assert "2 *" in done.out
    document = json.loads(graphbox("models", "updates", "words", "--json").out)
    assert (document["active"], [each["sequence"] for each in document["updates"]]) == (2, [1, 2, 3])
    assert graphbox("models", "updates", "words", "--roll-back-to", "9").code == 2
    manifest = Workspace(files / "workspace").model("words").path / "updates" / "1" / "manifest.json"
    manifest.write_text("{")
    assert "row update 1 cannot be read" in graphbox("models", "updates", "words").out
    assert graphbox("models", "updates", "words", "--roll-back-to", "3").code == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("update.npy",), 2, "expected ids of the rows"),
        (("other.csv",), 2, "expected a file, found none"),
        (("update.csv", "--id-column", "ide"), 2, "expected a column `ide`"),
        (("update.csv", "--sequence", "5"), 1, "expected row update 1, the next one, received 5"),
        (("update.csv", "--table", "nodes"), 2, "did you mean `node`?"),
        (("update.csv", "--format", "other"), 2, "expected one of the formats"),
        (("nan.csv",), 4, "expected finite numbers"),
        (("short.csv",), 4, "expected rows of floating-point numbers"),
        (("text.csv",), 4, "expected a table of text"),
        (("twice.csv",), 4, "is the id of row 0 and of row 1"),
        (("empty.csv",), 4, "at least one row"),
    ],
)
def test_mistakes(graphbox: Call, files: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    first = (files / "new_ids.txt").read_text().split()[0]
    (files / "nan.csv").write_text(f"id,a,b,c\n{first},1,nan,3\n")
    (files / "short.csv").write_text(f"id,a,b\n{first},1,2\n")
    (files / "text.csv").write_text(f"id,a,b,c\n{first},1,x,3\n")
    (files / "twice.csv").write_text(f"id,a,b,c\n{first},1,2,3\n{first},1,2,3\n")
    (files / "empty.csv").write_text("id,a,b,c\n")
    done = graphbox("models", "update", "words", *arguments)
    assert message in done.err
    assert done.code == code
    assert json.loads(graphbox("models", "updates", "words", "--json").out)["updates"] == []
