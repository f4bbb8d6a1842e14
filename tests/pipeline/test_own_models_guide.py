"""The module of docs/guides/own-models.md trains on the bundled graph from a run file, and is served."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from graphbox import demo
from graphbox.deploy import open_model

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "own-models.md"


def test_the_module_of_the_guide_trains_and_is_exported(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    code = re.search(r"```python\n(# my_models.py.*?)```", text, re.DOTALL)
    section = re.search(r"```yaml\n(models:.*?)```", text, re.DOTALL)
    assert code is not None
    assert section is not None
    (tmp_path / "my_models.py").write_text(code[1])
    yaml = YAML(typ="safe")
    run_file = yaml.load(Path(next(iter(demo.__path__))) / "graphbox.yaml")
    models = yaml.load(section[1])["models"]
    kept = {name: run_file[name] for name in ("version", "name", "seed", "graph")}
    tasks = {"section": {**run_file["tasks"]["section"], "baselines": ["majority"]}}
    export = {"sections": {"model": "sections"}}
    with (tmp_path / "graphbox.yaml").open("w") as stream:
        yaml.dump({**kept, "tasks": tasks, "models": models, "export": export}, stream)
    settings = ["models.sections.epochs=1", "models.sections.num_neighbors=[3,2]", "threads=1"]
    done = subprocess.run(
        [sys.executable, "-m", "graphbox", "run", "graphbox.yaml", *settings, "--json"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = report["metrics"]["section"]
    assert found["sections"]["accuracy"] > 0.5
    (version,) = (tmp_path / "workspace" / "models" / "sections").glob("[0-9]*")
    assert open_model(version) is not None
