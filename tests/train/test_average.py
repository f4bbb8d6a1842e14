"""The running average against the mean of everything that was added."""

from __future__ import annotations

import torch

from graphbox.train.average import RunningAverage


def test_is_the_mean_and_comes_back() -> None:
    generator = torch.Generator().manual_seed(0)
    sets = [{"a": torch.randn(3, 2, generator=generator), "b": torch.randn((), generator=generator)}]
    sets += [{name: value + step for name, value in sets[0].items()} for step in (1.0, 5.0, -2.0)]
    average = RunningAverage()
    assert average.state() == {}
    for number, tensors in enumerate(sets, start=1):
        average.add(tensors)
        average = RunningAverage.restore(average.state())
        assert average.count == number
        for name in ("a", "b"):
            expected = torch.stack([each[name] for each in sets[:number]]).mean(dim=0)
            torch.testing.assert_close(average.mean[name], expected)


def test_does_not_hold_on_to_what_was_added() -> None:
    value = torch.ones(2)
    average = RunningAverage()
    average.add({"a": value})
    value += 1.0
    assert average.mean["a"].tolist() == [1.0, 1.0]
    assert RunningAverage.restore({}).count == 0
