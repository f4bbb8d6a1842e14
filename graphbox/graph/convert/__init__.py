"""Turning columns of tables into ids, features, weights and timestamps, and telling which rows cannot be.

What a cell becomes depends on the cell and on the column's type, never on the batch it came in.
"""

from graphbox.graph.convert.converted import Converted
from graphbox.graph.convert.features import CategoricalReader, FeatureReader, feature_reader
from graphbox.graph.convert.ids import read_ids
from graphbox.graph.convert.numbers import read_weight
from graphbox.graph.convert.text import check_list_separator, plain_integers
from graphbox.graph.convert.timestamps import TimestampReader

__all__ = [
    "CategoricalReader",
    "Converted",
    "FeatureReader",
    "TimestampReader",
    "check_list_separator",
    "feature_reader",
    "plain_integers",
    "read_ids",
    "read_weight",
]
