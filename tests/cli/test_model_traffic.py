"""`graphbox models rollback`, `canary` and `shadow`."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbox.workspace import Workspace
from graphbox.workspace.traffic import ModelTraffic, ShadowOutput, ShadowSums
from tests.cli.conftest import Call
from tests.server.sample_models import add_model, write_encoder


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    """A workspace with three versions of a model, the first one active."""
    workspace = Workspace(folder / "workspace")
    for _ in range(3):
        add_model(workspace, "companion", write_encoder, activate=False)
    return workspace


def test_rollback(graphbox: Call, workspace: Workspace) -> None:
    workspace.promote_model("companion", 3)
    outcome = graphbox("models", "rollback", "companion")
    assert outcome.out.startswith("companion: version 1 is active, before it version 3 was\n")
    assert workspace.active_versions() == {"companion": 1}
    document = graphbox("models", "rollback", "companion", "--json").json
    assert (document["version"], document["active_before"], document["servers"]) == (3, 1, [])


def test_canary(graphbox: Call, workspace: Workspace) -> None:
    assert "there is no canary" in graphbox("models", "canary", "companion").out
    outcome = graphbox("models", "canary", "companion", "2", "--percent", "12.5")
    assert outcome.out == (
        "companion: version 2 answers 12.5 % of the requests as canary, version 1 the others\n"
    )
    document = graphbox("models", "canary", "companion", "--json").json
    assert (document["active"], document["canary"]["percent"]) == (1, 12.5)
    for arguments, message in ((("1",), "which is active"), (("2", "--percent", "101"), "at most 100")):
        failed = graphbox("models", "canary", "companion", *arguments)
        assert failed.code == 2
        assert message in failed.err
    for end in ("--end", "--percent=0"):
        graphbox("models", "canary", "companion", "2")
        assert "there is no canary" in graphbox("models", "canary", "companion", end).out
        assert workspace.traffic("companion") == ModelTraffic()


def test_shadow(graphbox: Call, workspace: Workspace) -> None:
    assert "there is no shadow" in graphbox("models", "shadow", "companion").out
    outcome = graphbox("models", "shadow", "companion", "3", "--tolerance", "0.01")
    assert "100 % of the requests to version 1 are repeated on version 3; tolerance 0.01" in outcome.out
    shadow = workspace.traffic("companion").shadow
    assert shadow is not None
    outputs = {
        "embedding": ShadowOutput(8, 2, 32, 3.2, 0.5),
        "nearest.neighbor": ShadowOutput(2, 1, listed=20, shared=19),
    }
    sums = ShadowSums(1200, 1, 2, 600_000_000, 1_200_000_000, "no id [x]", outputs)
    workspace.serving_records().add_shadow_sums("companion", shadow.change, sums)
    shown = graphbox("models", "shadow", "companion").out
    assert "1,200 requests compared, 1 failed, 2 dropped\nthe last failure: no id [x]\n" in shown
    assert "mean execution 1.000 ms, that of the active version 0.500 ms" in shown
    rows = [line.split() for line in shown.splitlines()[-2:]]
    assert rows == [
        ["embedding", "8", "25.00%", "0.1", "0.5"],
        ["nearest.neighbor", "2", "50.00%", "95.00%"],
    ]
    record = graphbox("models", "shadow", "companion", "--json").json["shadow_record"]
    assert (record["calls"], record["outputs"]["nearest.neighbor"]["overlap"]) == (1200, 0.95)
    assert graphbox("models", "shadow", "companion", "3", "--tolerance=-1").code == 2
    graphbox("models", "shadow", "companion", "--end")
    assert workspace.shadow_sums("companion") is None
