"""Original ids to node indices and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbox.artifact import Ids
from graphbox.errors import FormatError, InvalidRequestError, NotFoundError

STRINGS = Ids(pa.array(["nginx", "libc6", "curl", "libcurl4", "ngircd", ""]), "package")
INTEGERS = Ids(pa.array([0, -5, 2**63 - 1, 12, 120], pa.int64()), "user")


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), unique=True, min_size=1), st.randoms())
def test_strings_map_there_and_back(values: list[str], random: Any) -> None:
    ids = Ids(pa.array(values, pa.string()), "node")
    asked = random.choices(range(len(values)), k=10)
    assert ids.index([values[index] for index in asked]).tolist() == asked
    assert ids.take(np.array(asked)) == [values[index] for index in asked]
    assert list(ids) == values
    assert len(ids) == len(values)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1))
def test_integers_map_there_and_back(values: list[int]) -> None:
    ids = Ids(pa.array(values, pa.int64()), "node")
    assert ids.index(np.array(values, np.int64)).tolist() == list(range(len(values)))
    assert [ids.from_text(str(value)) for value in values] == values


@pytest.mark.parametrize("index", [-1, 6, 2**62])
def test_indices_out_of_range_select_no_other_id(index: int) -> None:
    with pytest.raises(InvalidRequestError, match=r"expected indices of a package in \[0, 6\)"):
        STRINGS.take([0, index])
    assert STRINGS.take([]) == []


def test_repeats_and_none_are_fine() -> None:
    assert STRINGS.index(["curl", "nginx", "curl"]).tolist() == [2, 0, 2]
    assert STRINGS.index([]).tolist() == []
    assert STRINGS.index([]).dtype == np.int64


def test_unknown_ids_are_named_with_a_suggestion() -> None:
    with pytest.raises(NotFoundError) as caught:
        STRINGS.index(["curl", "ngnix", "libcurl"])
    assert caught.value.message == (
        "expected the id of a node of type `package`, received `ngnix`, `libcurl` (2 of 3 ids are unknown)"
    )
    assert caught.value.hint == "did you mean `nginx`?"
    with pytest.raises(NotFoundError) as caught:
        INTEGERS.index([7])
    assert caught.value.message == "expected the id of a node of type `user`, received `7`"
    assert caught.value.hint == "there are 5 ids of the node type `user`"


def test_unknown_ids_may_be_asked_for() -> None:
    assert STRINGS.index(["x", "curl"], missing=-1).tolist() == [-1, 2]
    assert STRINGS.find("x") is None
    assert STRINGS.find("libc6") == 1


def test_texts_are_found_as_bytes() -> None:
    ids = Ids(pa.array(["a", "née", ""]), "x")
    assert ids.find_texts(["née".encode(), b"", b"\xff", b"b", b"a"]).tolist() == [1, 2, -1, -1, 0]
    assert ids.find_texts([]).tolist() == []


def test_many_unknown_ids_are_not_all_named() -> None:
    with pytest.raises(NotFoundError, match=r"`x0`, `x1`, `x2`, `x3`, `x4`, \.\.\. \(1000 of 1000"):
        STRINGS.index([f"x{number}" for number in range(1000)])


@pytest.mark.parametrize(
    ("ids", "wrong"), [(STRINGS, 1), (STRINGS, b"curl"), (INTEGERS, "12"), (INTEGERS, True), (INTEGERS, 12.0)]
)
def test_ids_of_another_type_are_refused(ids: Ids, wrong: Any) -> None:
    with pytest.raises(
        InvalidRequestError, match=f"expected ids of type {ids.kind}, received {type(wrong).__name__}"
    ):
        ids.index([ids[0], wrong])


def test_unhashable_ids_are_refused() -> None:
    with pytest.raises(InvalidRequestError):
        STRINGS.index([["curl"]])  # type: ignore[list-item]


@pytest.mark.parametrize("text", ["", "x", "1.0", "1e3", " 1", "1" * 30, "٣"])
def test_text_that_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="expected an integer id of a node of type `user`"):
        INTEGERS.from_text(text)


def test_prefixes_list_the_shortest_first() -> None:
    assert STRINGS.take(STRINGS.with_prefix("lib", 10)) == ["libc6", "libcurl4"]
    assert STRINGS.take(STRINGS.with_prefix("ng", 1)) == ["nginx"]
    assert STRINGS.with_prefix("zzz", 5).tolist() == []
    assert INTEGERS.take(INTEGERS.with_prefix("12", 5)) == [12, 120]


def test_suggestions_in_a_large_set_are_fast_and_close() -> None:
    many = Ids(
        pa.array([f"package-{number}-dev" for number in range(100_000)] + ["python3-numpy"]), "package"
    )
    assert many.suggest("pyhton3-numpy") == "did you mean `python3-numpy`?"
    assert many.suggest("ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ") is None
    assert INTEGERS.suggest(13) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array(["a", "b", "a"]), "received 1 duplicates"),
        (pa.array(["a", None]), "received 1 nulls"),
        (pa.array([1.5]), "received double"),
        (pa.array([1], pa.int32()), "received int32"),
    ],
)
def test_wrong_ids_are_refused(values: pa.Array, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        Ids(values, "package", "ids.parquet")
    assert caught.value.where == "ids.parquet"


def test_slices_of_arrow_arrays_are_read_right() -> None:
    ids = Ids(pa.chunked_array([["skipped", "nginx"], ["curl"]]).slice(1), "package")
    assert list(ids) == ["nginx", "curl"]
    assert ids.suggest("crul") == "did you mean `curl`?"


@pytest.mark.parametrize(
    ("ids", "wrong"),
    [(STRINGS, "\ud800"), (INTEGERS, 2**70), (INTEGERS, -(2**63) - 1), (INTEGERS, 10**5000)],
    ids=["half a surrogate pair", "large", "small", "of 5,000 digits"],
)
def test_values_that_no_id_can_have_are_unknown(ids: Ids, wrong: Any) -> None:
    assert ids.index([ids[0], wrong], missing=-1).tolist() == [0, -1]
    assert ids.find(wrong) is None
    with pytest.raises(NotFoundError):
        ids.index([wrong])


def unmixed(hashes: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the integers that have these hashes (docs/formats/graph.md, Ids)."""
    first, second = (
        np.uint64(pow(factor, -1, 1 << 64)) for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    )

    def unshifted(
        bits: np.ndarray[Any, np.dtype[np.uint64]], by: int
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        found = bits.copy()
        for _ in range(3):
            found = bits ^ (found >> np.uint64(by))
        return found

    bits = unshifted(unshifted(unshifted(hashes, 31) * second, 27) * first, 30)
    return bits.view(np.int64)


@pytest.mark.parametrize("shift", [32, 0], ids=["one slot", "one partition"])
def test_ids_chosen_for_their_hashes_are_refused_at_once(shift: int) -> None:
    many = 20_000 if shift else 2_000_000
    values = unmixed(np.arange(many, dtype=np.uint64) << np.uint64(shift))
    with pytest.raises(FormatError, match="expected ids whose hashes differ"):
        Ids(pa.array(values), "user")


def test_one_id_in_every_row_is_repeated() -> None:
    with pytest.raises(FormatError, match="received 299999 duplicates"):
        Ids(pa.array(np.full(300_000, 7)), "user")
