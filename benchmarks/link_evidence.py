"""Links of Last.fm (HetRec 2011, MAGNN's split) by hand-made evidence: how much the data says about them.

    python -m benchmarks.link_evidence --root FOLDER [--seed 0]

FOLDER has the files of ``lastfm-hin``. Gradient-boosted trees read what the graph says of a pair in many
ways: degrees, friends, shared listeners, shared tags. They learn from links that are held out of the training
part, each beside two pairs that are none, and are measured on the test part beside as many pairs drawn
uniformly from those that are no link: the rule, and with ``--published`` the very pairs, of MAGNN's notebook.
Prints the AUC of each kind of evidence, that of the trees, and that of test links by how many listeners the
artist has in the training part.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from benchmarks.quality_data.lastfm_hin import read_numbers
from benchmarks.quality_data.node_tables import read_arrays

_HELD_OUT = 0.2
_NEGATIVES = 2
_PUBLISHED_SEED = 453289
_LISTENERS = ((1, 1), (2, 2), (3, 5), (6, 20), (21, None))

Pairs = NDArray[np.int64]


@dataclass(frozen=True)
class Listening:
    """The data set.

    Attributes:
        pairs: int64 [n, 2], users and artists, from 0, sorted.
        parts: places in ``pairs`` by the name of a part.
        tags: tags of artists, by how many gave them: [artists, tags].
        friends: [users, users].
    """

    pairs: Pairs
    parts: dict[str, NDArray[np.int64]]
    tags: sp.csr_array
    friends: sp.csr_array

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and artists."""
        return self.friends.shape[0], self.tags.shape[0]

    def graph(self, rows: NDArray[np.int64]) -> sp.csr_array:
        """Return the links at some places as a matrix, [users, artists]."""
        user, artist = self.pairs[rows].T
        return sp.csr_array((np.ones(len(rows), dtype=np.float32), (user, artist)), shape=self.shape)

    def strangers(self, count: int, generator: np.random.Generator) -> Pairs:
        """Return ``count`` different pairs that are no link, drawn uniformly."""
        users, artists = self.shape
        codes = self.pairs @ [artists, 1]
        drawn = generator.choice(users * artists, 2 * count, replace=False)
        return np.stack(np.divmod(drawn[~np.isin(drawn, codes)][:count], artists), axis=1)

    def published_strangers(self) -> Pairs:
        """Return the test pairs that are no link of MAGNN's notebook (github.com/cynricfu/MAGNN)."""
        users, artists = self.shape
        free = np.setdiff1d(np.arange(users * artists), self.pairs @ [artists, 1], assume_unique=True)
        validation, test = (len(self.parts[name]) for name in ("val_idx", "test_idx"))
        drawn = np.random.RandomState(_PUBLISHED_SEED).choice(len(free), validation + test, replace=False)
        return np.stack(np.divmod(free[drawn[validation:]], artists), axis=1)


def read(root: Path) -> Listening:
    """Read the files of ``lastfm-hin``."""
    listens, tagged, friends = (
        read_numbers(root / f"{name}.dat.gz") for name in ("user_artist", "artist_tag", "user_user")
    )
    users, artists = listens[:, :2].max(axis=0)
    tag = np.unique(tagged[:, 1], return_inverse=True)[1]
    arrays = read_arrays(root / "split.npz")
    return Listening(
        listens[:, :2] - 1,
        {name: arrays[name] for name in ("train_idx", "val_idx", "test_idx")},
        sp.csr_array((np.ones(len(tagged)), (tagged[:, 0] - 1, tag)), shape=(artists, tag.max() + 1)),
        sp.csr_array((np.ones(len(friends)), tuple(friends.T - 1)), shape=(users, users)),
    )


def evidence(data: Listening, known: sp.csr_array, pairs: Pairs) -> dict[str, NDArray[np.float64]]:
    """Return what a graph says of pairs that are not in it, by name of the evidence."""
    user, artist = pairs.T
    by_artist, by_user = known.sum(axis=0), known.sum(axis=1)
    rarity = np.log(data.shape[1] / np.maximum((data.tags > 0).sum(axis=0), 1))
    tags = _unit_rows(sp.csr_array(data.tags.sqrt() * rarity[None]))
    taste = _unit_rows(sp.csr_array(known @ tags))
    columns = sp.csr_array(_unit_rows(sp.csr_array(known.T)).T)
    alike = sp.csr_array(known * (1 / np.log(2 + by_artist))[None]) @ known.T
    alike.setdiag(0)
    return {
        "listeners of the artist": by_artist[artist],
        "artists of the user": by_user[user],
        "tags of the artist": data.tags.sum(axis=1)[artist],
        "friends who listen": _at(data.friends, sp.csr_array(known.T), user, artist),
        "users alike (Adamic and Adar)": _at(alike, sp.csr_array(known.T), user, artist),
        "artists alike (cosine of listeners)": _at(known, sp.csr_array(columns.T @ columns), user, artist),
        "tags of the user's artists (cosine)": _at(taste, tags, user, artist),
    }


def _unit_rows(rows: sp.csr_array) -> sp.csr_array:
    length = np.sqrt(rows.multiply(rows).sum(axis=1))
    return sp.csr_array(rows * (1 / np.maximum(length, 1e-9))[:, None])


def _at(
    left: sp.csr_array, right: sp.csr_array, row: NDArray[np.int64], column: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the products of rows of ``left`` with rows of ``right``."""
    places = np.array_split(np.arange(len(row)), max(1, len(row) // 4096))
    return np.concatenate([left[row[at]].multiply(right[column[at]]).sum(axis=1) for at in places])


def main() -> None:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--published", action="store_true", help="the very pairs of the published notebook")
    options = parser.parse_args()
    data, generator = read(options.root), np.random.default_rng(options.seed)
    train, test = data.parts["train_idx"], data.pairs[data.parts["test_idx"]]

    # As in the split, each artist keeps a listener.
    order = generator.permutation(train)
    first = np.unique(data.pairs[order][:, 1], return_index=True)[1]
    held = np.delete(order, first)[: int(_HELD_OUT * len(train))]
    taught = np.concatenate([data.pairs[held], data.strangers(_NEGATIVES * len(held), generator)])
    strangers = data.published_strangers() if options.published else data.strangers(len(test), generator)
    asked = np.concatenate([test, strangers])
    learnt = evidence(data, data.graph(np.setdiff1d(train, held)), taught)
    found = evidence(data, data.graph(train), asked)

    trees = HistGradientBoostingClassifier(max_iter=300, learning_rate=0.05, random_state=options.seed)
    trees.fit(np.stack([*learnt.values()], axis=1), np.arange(len(taught)) < len(held))
    score = trees.predict_proba(np.stack([*found.values()], axis=1))[:, 1]
    is_link = np.arange(len(asked)) < len(test)
    print("| evidence | AUC |\n|---|---|")
    for name, values in {**found, "all, by boosted trees": score}.items():
        print(f"| {name} | {roc_auc_score(is_link, values):.4f} |")
    print(
        "\n| listeners | test links | no links | AUC of these links, beside all others |\n|---|---|---|---|"
    )
    listeners = found["listeners of the artist"]
    for least, most in _LISTENERS:
        inside = (listeners >= least) & (listeners <= (most or np.inf))
        those = (is_link & inside) | ~is_link
        auc = roc_auc_score(is_link[those], score[those])
        counts = (is_link & inside).sum(), (~is_link & inside).sum()
        print(f"| {least} to {most or 'more'} | {counts[0]:,} | {counts[1]:,} | {auc:.4f} |")


if __name__ == "__main__":
    main()
