"""Assignment of requests to versions of a model, as the workspace stores it."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from graphbox.errors import GraphboxError, NotFoundError, UsageError
from graphbox.workspace import Workspace
from graphbox.workspace.traffic import Canary, ModelTraffic, Shadow, ShadowOutput, ShadowSums
from tests.server.sample_models import add_model, write_encoder, write_vectors


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with four versions of a model, the first one active."""
    workspace = Workspace(tmp_path / "work")
    for _ in range(4):
        add_model(workspace, "companion", write_encoder, activate=False)
    return workspace


def active(workspace: Workspace) -> int:
    return workspace.active_versions()["companion"]


def events(workspace: Workspace) -> list[tuple[str, int]]:
    return [(each.event, each.detail["version"]) for each in workspace.history("model", "companion")][4:]


def test_rolling_back_returns_to_what_was_active_before(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no other version of the model `companion`"):
        workspace.roll_back_model("companion")
    workspace.promote_model("companion", 3)
    assert workspace.roll_back_model("companion").version == 1 == active(workspace), "never promoted by hand"
    workspace.promote_model("companion", 2)
    workspace.promote_model("companion", 4)
    workspace.remove_model("companion", 2)
    assert workspace.roll_back_model("companion").version == 1, "of those that are left"
    assert workspace.roll_back_model("companion").version == 4
    with pytest.raises(NotFoundError, match="`companio`"):
        workspace.roll_back_model("companio")


def test_canary_and_shadow_are_set_replaced_and_ended(workspace: Workspace) -> None:
    assert workspace.traffic("companion") == ModelTraffic()
    canary = workspace.set_canary("companion", 2, 10)
    shadow = workspace.set_shadow("companion", 3, 50, 0.5)
    assert workspace.traffic("companion") == ModelTraffic(canary, shadow)
    assert workspace.serving_records().read().traffic == {"companion": ModelTraffic(canary, shadow)}
    second = workspace.set_canary("companion", 4, 20)
    assert second == Canary(4, 20, second.change)
    assert second.change > shadow.change > canary.change
    assert shadow == Shadow(3, 50, 0.5, shadow.change)
    assert workspace.end_share("companion", "canary")
    assert not workspace.end_share("companion", "canary")
    assert workspace.traffic("companion") == ModelTraffic(None, shadow)
    assert events(workspace) == [("canary", 2), ("shadow", 3), ("canary", 4), ("canary ended", 4)]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_promotion_ends_both(workspace: Workspace, version: int) -> None:
    workspace.set_canary("companion", 2, 10)
    workspace.set_shadow("companion", 3)
    before = workspace.serving_records().change()
    workspace.promote_model("companion", version)
    assert workspace.traffic("companion") == ModelTraffic()
    assert workspace.shadow_sums("companion") is None
    assert workspace.serving_records().change() > before, "servers find it when they poll"


def test_removing_a_version_ends_what_it_was(workspace: Workspace) -> None:
    workspace.set_canary("companion", 2, 10)
    shadow = workspace.set_shadow("companion", 3)
    workspace.remove_model("companion", 2)
    assert workspace.traffic("companion") == ModelTraffic(None, shadow)
    workspace.remove_model("companion", 1)
    assert workspace.traffic("companion") == ModelTraffic(), "another version became active"
    workspace.set_shadow("companion", 3)
    workspace.remove_model("companion")
    assert workspace.serving_records().read().traffic == {}


@pytest.mark.parametrize("percent", [-1.0, 0.0, 100.5, float("nan"), float("inf")])
def test_shares_are_percentages(workspace: Workspace, percent: float) -> None:
    for role in (workspace.set_canary, workspace.set_shadow):
        with pytest.raises(UsageError, match="at most 100 percent"):
            role("companion", 2, percent)
    assert workspace.traffic("companion") == ModelTraffic()


def test_wrong_versions_and_tolerances_change_nothing(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="which is active"):
        workspace.set_canary("companion", 1, 10)
    other = add_model(workspace, "companion", write_vectors, activate=False)
    with pytest.raises(UsageError, match="expected a version of the kind encoder"):
        workspace.set_canary("companion", other, 10)
    with pytest.raises(NotFoundError, match="no version 9"):
        workspace.set_shadow("companion", 9)
    for tolerance in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="tolerance"):
            workspace.set_shadow("companion", 2, 100, tolerance)
    with pytest.raises(NotFoundError, match="`shop`"):
        workspace.end_share("shop", "canary")
    assert workspace.traffic("companion") == ModelTraffic()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE models SET active = (version = 2)", "received version 2, which is active"),
        ("UPDATE models SET kind = 'click' WHERE active", "kind click, as the active one"),
        ("DELETE FROM models WHERE version = 2", "no version 2"),
    ],
)
@pytest.mark.parametrize("role", ["canary", "shadow"])
def test_a_change_at_the_same_time_is_seen(
    workspace: Workspace, role: str, change: str, message: str
) -> None:
    """Another process changes the versions after a canary was asked for, and before it is written."""
    errors: list[GraphboxError] = []

    def ask() -> None:
        try:
            workspace.set_canary("companion", 2, 10) if role == "canary" else workspace.set_shadow(
                "companion", 2
            )
        except GraphboxError as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    with closing(sqlite3.connect(workspace.root / "graphbox.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asking.start()
        asking.join(0.5)
        assert asking.is_alive(), "it waits for the lock"
        other.execute(change)
        other.execute("COMMIT")
    asking.join(30)
    (error,) = errors
    assert message in error.message
    assert workspace.traffic_of_models() == {}


def test_sums_of_several_servers_are_added_until_the_shadow_ends(workspace: Workspace) -> None:
    shadow = workspace.set_shadow("companion", 3)
    records = [workspace.serving_records() for _ in range(2)]
    output = ShadowOutput(4, 1, 16, 2.0, 0.75, 10, 9)
    first = ShadowSums(1, 0, 2, 1_000_000, 3_000_000, None, {"embedding": output})
    second = ShadowSums(0, 1, 0, 0, 0, "no id", {"embedding": ShadowOutput(difference_max=0.5)})
    assert workspace.shadow_sums("companion") == ShadowSums()
    for record, sums in zip(records, (first, second), strict=True):
        assert record.add_shadow_sums("companion", shadow.change, sums)
    found = workspace.shadow_sums("companion")
    assert found == ShadowSums(1, 1, 2, 1_000_000, 3_000_000, "no id", {"embedding": output})
    assert found.outputs["embedding"].different_share == 0.25
    assert found.outputs["embedding"].mean_difference == 0.125
    assert found.outputs["embedding"].overlap == 0.9
    assert (found.active_ms, found.shadow_ms) == (1.0, 3.0)
    again = workspace.set_shadow("companion", 3)
    assert not records[0].add_shadow_sums("companion", shadow.change, first), "of a shadow that has ended"
    assert workspace.shadow_sums("companion") == ShadowSums()
    assert records[0].add_shadow_sums("companion", again.change, first)
