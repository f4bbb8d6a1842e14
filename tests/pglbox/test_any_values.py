"""Whatever stands in a PGLBox YAML file: a run file that its own check reads, or errors with their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from graphbox.config import load_config
from graphbox.errors import ConfigError
from graphbox.pglbox import KEYS, convert
from tests.pglbox.presets import paddlerec, pgl

NAMES = st.sampled_from(["u", "t", "用户", "mini_video", "a__b", "", "2", "x y"])
EDGES = st.lists(NAMES, min_size=1, max_size=4).map("2".join)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.lists(EDGES, max_size=3).map("-".join),
    st.lists(EDGES, max_size=3).map(";".join),
    st.lists(st.tuples(EDGES, NAMES).map(":".join), max_size=3).map(",".join),
    st.sampled_from(["1e-6", "True", "nce", "hdfs:/data", "[u2t;t2u,u2t]"]),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=4), SCALARS, max_size=2)
)


@example(base=pgl(), changes={"token_slot": "\x1b\n}: [", "mine\u2028": 1})
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.sampled_from([pgl(), paddlerec()]),
    changes=st.dictionaries(st.sampled_from([*KEYS, "wlak_len", "mine"]), VALUES, max_size=5),
)
def test_any_values(tmp_path: Path, base: dict[str, Any], changes: dict[str, Any]) -> None:
    path, output = tmp_path / "config.yaml", tmp_path / "graphbox.yaml"
    # JSON is YAML, one key to a line.
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in {**base, **changes}.items())
    path.write_text("".join(f"{line}\n" for line in lines))
    refused: ConfigError | None = None
    try:
        conversion = convert(path, output=output)
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert refused.problems or refused.where
        assert all(problem.startswith(str(path)) for problem in refused.problems)
        return
    output.write_text(conversion.text)
    config = load_config(output, check_files=False)
    assert config.graph.name == "config"
    assert [outcome.key for outcome in conversion.outcomes] == list({**base, **changes})
