"""Last.fm's listeners and artists (HetRec 2011) in the split of LightGCN's authors."""

from __future__ import annotations

from benchmarks.quality_data.protocol import DataSet
from benchmarks.quality_data.rankings import ranking_figures

DATA_SET = DataSet(
    name="lastfm",
    run_file="examples/lastfm/graphbox.yaml",
    files=("train.txt.gz", "test.txt.gz"),
    figures=ranking_figures(
        "artists",
        "lightgcn",
        goals=(0.2716, 0.214),
        published={"gfcf": (".2716", ".2139")},
        others=("ease", "gfcf", "ials", "popular"),
    ),
    remark="The split is given; its test part was seen once before, when the command was tried out.",
)
