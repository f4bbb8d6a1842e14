"""The guide names files, links and values as they are."""

from __future__ import annotations

import re

from graphbox.server.settings import Settings
from tests.operations.manifests import OPERATIONS, ROOT, USER, objects_of_kind, unit_settings

GUIDE = ROOT / "docs" / "guides" / "deployment.md"
TEXT = GUIDE.read_text()


def test_files_exist_and_each_folder_is_named() -> None:
    named = set(re.findall(r"(?<!tests/)operations/[\w./-]*\w", TEXT))
    assert all((ROOT / path).exists() for path in named)
    folders = {path.parent for path in OPERATIONS.rglob("*") if path.is_file()} - {
        OPERATIONS / "kubernetes" / "network"  # a part of the others
    }
    assert {str(folder.relative_to(ROOT)) for folder in folders} <= named


def test_links_lead_to_headings() -> None:
    for path, heading in re.findall(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)", TEXT):
        page = (GUIDE.parent / path).read_text()
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
            for line in page.splitlines()
            if line.startswith("#")
        }
        assert not heading or heading in headings, f"{path}#{heading}"


def test_values() -> None:
    ((_, scaler),) = objects_of_kind("HorizontalPodAutoscaler")
    spec = scaler["spec"]
    assert f"a Deployment of {spec['minReplicas']} to {spec['maxReplicas']} pods" in TEXT
    assert f"above {spec['metrics'][0]['resource']['target']['averageUtilization']} % of" in TEXT
    assert f"for up to {Settings.drain_timeout_s} s" in TEXT
    assert f"number {USER}" in TEXT
    ((_, stateful_set),) = objects_of_kind("StatefulSet")
    grace_s = stateful_set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert f"`terminationGracePeriodSeconds` is {grace_s}" in TEXT
    assert f"`TimeoutStopSec` {unit_settings()['TimeoutStopSec'][0]}" in TEXT
