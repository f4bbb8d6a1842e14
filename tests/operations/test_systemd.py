"""The systemd unit, as systemd reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from graphbox.server.settings import Settings
from tests.operations.manifests import PROGRAM, UNIT, unit_settings, unit_words

# Of 100: systemd calls less than 20 "OK", and the worst 100 "UNSAFE".
HIGHEST_EXPOSURE = 15

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and os.environ.get("CI") != "true",
    reason="systemd-analyze is not here: apt-get install systemd",
)


def analyze(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", *arguments],  # noqa: S607 (that of the system)
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    return path


@needs_systemd
def test_systemd_reads_the_unit(unit: Path) -> None:
    analyze("verify", unit)


@needs_systemd
def test_unit_is_confined(unit: Path) -> None:
    analyze("security", "--offline=true", f"--threshold={HIGHEST_EXPOSURE}", unit)


def test_unit_writes_to_its_own_folders_alone() -> None:
    settings = unit_settings()
    assert settings["DynamicUser"] == ["yes"]
    assert settings["StateDirectory"] == settings["CacheDirectory"] == ["graphbox"]
    assert settings["Environment"] == ["GRAPHBOX_PACKAGES=/var/cache/graphbox"]
    assert "--workspace=/var/lib/graphbox" in unit_words()
    assert int(settings["TimeoutStopSec"][0]) > Settings.drain_timeout_s
    assert "--token-file=/etc/graphbox/tokens.toml" in unit_words()
