"""Estimated and measured seconds of closed forms: whether a baseline keeps within its estimate.

    OMP_NUM_THREADS=1 python -m benchmarks.baseline_costs [--queries 3000] [--targets 3000] [--answers 60000]

Answers are drawn at random, targets by a power law. Prints a JSON line for each closed form: ``case``,
``estimated_s``, ``cpu_s`` (of the process, for fitting and scoring all queries) and ``ratio``, estimated over
measured: above 1 on a core as fast as those that the rates of ``graphbox/train/baseline_costs.py`` are for.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.models.ease import EaseGram, scores_of_weights
from graphbox.models.gfcf import fit_gfcf
from graphbox.models.ials import fit_ials
from graphbox.models.propagation import propagated_labels
from graphbox.train.baseline_costs import NodeSizes, RankingSizes, node_costs, ranking_costs
from graphbox.train.closed_forms import EASE_PENALTIES

Score = Callable[[NDArray[np.int64]], NDArray[np.float32]]

_ROWS = 64
_CLASSES = 20


def random_answers(queries: int, targets: int, answers: int) -> sp.csr_array:
    """Return 0/1 answers, float32 [queries, targets]; the number of a target decides how popular it is."""
    generator = np.random.default_rng(0)
    row = generator.integers(0, queries, answers)
    column = (targets * generator.random(answers) ** 2.5).astype(np.int64)
    found = sp.csr_array((np.ones(answers, np.float32), (row, column)), shape=(queries, targets))
    found.data[:] = 1.0
    return found


def _gfcf(answers: sp.csr_array) -> Score:
    return fit_gfcf(answers)


def _ials(answers: sp.csr_array) -> Score:
    of_queries, of_targets = fit_ials(answers)
    return lambda rows: np.asarray(of_queries[rows] @ of_targets.T)


def _ease(answers: sp.csr_array) -> Score:
    gram = EaseGram(answers)
    for penalty in EASE_PENALTIES:
        gram.weights(penalty)
    return scores_of_weights(answers, gram.weights(EASE_PENALTIES[0]))


_FITS: Mapping[str, Callable[[sp.csr_array], Score]] = {"gfcf": _gfcf, "ials": _ials, "ease": _ease}


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", type=int, default=3_000)
    parser.add_argument("--targets", type=int, default=3_000)
    parser.add_argument("--answers", type=int, default=60_000)
    options = parser.parse_args()
    answers = random_answers(options.queries, options.targets, options.answers)
    sizes = RankingSizes.at_most(options.queries, options.targets, answers.nnz, options.queries)
    costs = ranking_costs(sizes)
    for name, fit in _FITS.items():
        began = time.process_time()
        score = fit(answers)
        for first in range(0, options.queries, _ROWS):
            score(np.arange(first, min(first + _ROWS, options.queries)))
        _show(name, costs[name].seconds, time.process_time() - began)
    nodes = options.queries + options.targets
    links = sp.csr_array(sp.block_array([[None, answers], [answers.T, None]], format="csr"))
    labels = np.eye(_CLASSES, dtype=np.float32)[np.arange(nodes) % _CLASSES]
    cost = node_costs(NodeSizes(nodes, links.nnz, _CLASSES, nodes, 0, 0, nodes))["label_propagation"]
    began = time.process_time()
    propagated_labels(links, labels)
    _show("label_propagation", cost.seconds, time.process_time() - began)


def _show(case: str, estimated_s: float, measured_s: float) -> None:
    line = {
        "case": case,
        "estimated_s": round(estimated_s, 2),
        "cpu_s": round(measured_s, 2),
        "ratio": round(estimated_s / measured_s, 2),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
