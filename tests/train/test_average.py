"""Running averages against the mean of everything that was added, or the moving average by its formula."""

from __future__ import annotations

import pytest
import torch

from graphbox.train.optimization import RunningAverage


@pytest.mark.parametrize("decay", [None, 0.9])
def test_is_the_average_and_comes_back(decay: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    sets = [{"a": torch.randn(3, 2, generator=generator), "b": torch.randn((), generator=generator)}]
    sets += [{name: value + step for name, value in sets[0].items()} for step in (1.0, 5.0, -2.0)]
    average = RunningAverage(decay)
    assert average.state() == {}
    for number, tensors in enumerate(sets, start=1):
        average.add(tensors)
        other = RunningAverage(decay)
        other.restore(average.state())
        average = other
        assert average.count == number
        for name in ("a", "b"):
            expected = sets[0][name]
            for count, each in enumerate(sets[1:number], start=2):
                own = 1.0 / count if decay is None else 1.0 - decay
                expected = (1.0 - own) * expected + own * each[name]
            if decay is None:
                torch.testing.assert_close(
                    expected, torch.stack([each[name] for each in sets[:number]]).mean(dim=0)
                )
            torch.testing.assert_close(average.mean[name], expected)


def test_does_not_hold_on_to_what_was_added() -> None:
    value = torch.ones(2)
    average = RunningAverage()
    average.add({"a": value})
    value += 1.0
    assert average.mean["a"].tolist() == [1.0, 1.0]
    average.restore({})
    assert average.count == 0
    assert average.mean == {}
