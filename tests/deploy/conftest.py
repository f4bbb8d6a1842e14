"""A deployed sample model, and packages that bring adapters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphbox.deploy import DeployedEncoder, open_encoder
from tests.artifact.sample_model import SampleModel, make_model, write_embedding, write_encoder

Install = Callable[[str, str, str], None]


@pytest.fixture(scope="session")
def sample() -> SampleModel:
    return make_model()


@pytest.fixture(scope="session")
def encoder(sample: SampleModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedEncoder]:
    with open_encoder(write_encoder(tmp_path_factory.mktemp("models") / "1", sample).path) as model:
        yield model


@pytest.fixture(scope="session")
def embedding(sample: SampleModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedEncoder]:
    with open_encoder(write_embedding(tmp_path_factory.mktemp("models") / "1", sample).path) as model:
        yield model


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package with one adapter: its name, its module, the module's text.

    It makes what an installer makes, a module and a ``.dist-info`` folder, on a path of its own.
    """
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    modules: list[str] = []

    def install_package(name: str, module: str, text: str) -> None:
        (site / f"{module}.py").write_text(text)
        information = site / f"{module}-1.2.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.2\n")
        (information / "entry_points.txt").write_text(f"[graphbox.adapters]\n{name} = {module}:adapter\n")
        modules.append(module)

    yield install_package
    for module in modules:
        sys.modules.pop(module, None)
