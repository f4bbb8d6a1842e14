"""The bundled graph, Debian 12's package index, with the run file of the demo; held out is whole sources."""

from __future__ import annotations

from benchmarks.quality_data.protocol import DataSet, Figure
from benchmarks.quality_data.rankings import ranking_figures

DATA_SET = DataSet(
    name="debian",
    run_file="examples/debian/graphbox.yaml",
    files=(),
    figures=(
        Figure("section accuracy", ("section", "skipgram", "accuracy"), goal=0.78),
        Figure("section accuracy neighbors_vote", ("section", "neighbors_vote", "accuracy")),
        *ranking_figures("companion", "sage", goals=(0.38, 0.3), published={}, others=()),
    ),
    remark="The seed is also that of the split, so each measures on other sources.",
)
