"""Runs lives of tables.

python -m tests.table.lives KIND [--seed 0] [--lives 1] [--operations 5000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.table.life import Life, LifeWithEviction, LifeWithPolicies
from tests.table.life_on_ssd import LifeInTraining, LifeOnSsd, LifeOnSsdWithPolicies

KINDS: dict[str, type[Life]] = {
    "memory": Life,
    "policies": LifeWithPolicies,
    "eviction": LifeWithEviction,
    "ssd": LifeOnSsd,
    "ssd-policies": LifeOnSsdWithPolicies,
    "training": LifeInTraining,
}


def live(kind: str, seed: int, operations: int) -> Counter[str]:
    """Let operations happen to a new table, and return how often each did."""
    with tempfile.TemporaryDirectory(prefix="table-life-") as folder:
        life = KINDS[kind](seed, Path(folder))
        try:
            life.run(operations)
        except BaseException as error:
            error.add_note(
                f"python -m tests.table.lives {kind} --seed {seed} --operations {operations}: operation "
                f"{life.counts.total()} of a {life.dtype} table of {life.optimizer}, dim {life.dim}, after "
                f"{', '.join(life.recent)}"
            )
            raise
        finally:
            life.end()
    return life.counts


def main() -> None:
    """Run lives, and say how often each operation happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lives", type=int, default=1)
    parser.add_argument("--operations", type=int, default=5000)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    begin = time.perf_counter()
    for seed in range(options.seed, options.seed + options.lives):
        counts += live(options.kind, seed, options.operations)
        print(f"seed {seed}: {counts.total()} operations, {time.perf_counter() - begin:.0f} s", flush=True)
    print(dict(counts.most_common()))


if __name__ == "__main__":
    main()
