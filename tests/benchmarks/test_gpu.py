"""The page of figures of a GPU: what benchmarks print becomes tables, what fails is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Outcome, machine, page, run_benchmark
from graphbox.bandwidth import Bandwidths

BANDWIDTHS = Bandwidths("a GPU", 2e12, 2e10, (1e12, 2e12, 3e12), (1e10, 2e10, 3e10), 5e10, 6e10, 2.25e12)
FIGURE = {
    "case": "hop", "system": "graphbox", "device": "a GPU", "rate": 3e9, "unit": "edges/s", "min": 2e9,
    "max": 4e9, "repeats": 5, "limit": "device sectors", "limit_rate": 5e9, "share": 0.6, "goal": 0.5,
}  # fmt: skip
OWN = {**FIGURE, "case": "relabelled", "limit": None, "limit_rate": None, "share": None, "goal": None}


def benchmark(code: str) -> Outcome:
    return run_benchmark("gpu_made", "made", [sys.executable, "-c", f"import json, sys\n{code}"])


def test_figures_are_collected() -> None:
    outcome = benchmark(f"for figure in {[FIGURE, OWN]}: print(json.dumps(figure))")
    assert outcome == Outcome("gpu_made", "made", [FIGURE, OWN], None)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("print('first', file=sys.stderr); sys.exit('last')", "it ended with 1: last"),
        ("sys.exit(5)", "it ended with 5: it said nothing"),
    ],
)
def test_failures_are_told(code: str, failure: str) -> None:
    outcome = benchmark(f"print('{json.dumps(FIGURE)}'); {code}")
    assert outcome == Outcome("gpu_made", "made", [FIGURE], failure)


def test_page() -> None:
    outcomes = [
        Outcome("gpu_made", "made", [FIGURE, OWN], None),
        Outcome("gpu_bad", "bad", [], "it ended with 1: x"),
    ]
    text = page("a GPU, driver 1", "python -m benchmarks.gpu", BANDWIDTHS, outcomes)
    assert text.startswith("# Measured on a GPU\n\n`python -m benchmarks.gpu` on 20")
    for line in (
        "| device sectors | 2,000.0 |",
        "| pinned rows of 256 bytes | 20.0 |",
        "| copy device to device | 2,250.0 |",
        "| hop | graphbox | 3.00 G [2.00 G - 4.00 G] edges/s | 60% of device sectors | 50% |",
        "| relabelled | graphbox | 3.00 G [2.00 G - 4.00 G] edges/s |  |  |",
        "Not complete: it ended with 1: x.",
    ):
        assert line in text.splitlines()


def test_machine() -> None:
    assert f"PyTorch {torch.__version__}" in machine(torch.device("cpu"))


@pytest.mark.gpu_kernel
def test_nothing_is_written_by_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "PAGE", tmp_path / "gpu.md")
    monkeypatch.setattr(
        gpu, "run_benchmark", lambda name, purpose, command: Outcome(name, purpose, [OWN], None)
    )
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--only", "gpu_walk"])
    assert gpu.main() == 0
    out = capsys.readouterr().out
    assert "`python -m benchmarks.gpu --device cpu --only gpu_walk`" in out
    assert "## gpu_walk\n\nSteps of random walks" in out
    assert not gpu.PAGE.exists()
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--page", str(tmp_path / "page.md")])
    assert gpu.main() == 0
    assert "## gpu_walk" in (tmp_path / "page.md").read_text()


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert gpu.main() == 5
    assert "found no CUDA device" in capsys.readouterr().err
