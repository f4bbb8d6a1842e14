"""Tests of the probes on any device: they read each counted byte once, from all over the memory."""

from __future__ import annotations

import pytest
import torch

from graphbox.bandwidth_gpu import read_rows, read_sectors, run_seconds, touched_sectors


class BandwidthProbes:
    """Tests with the fixture ``device``."""

    @pytest.mark.parametrize("rows", [1, 2, 32, 512, 4096])
    @pytest.mark.parametrize("reads", [1, 4])
    def test_every_sector_is_read_once(self, device: torch.device, rows: int, reads: int) -> None:
        for _ in range(3):  # what is read twice, and another not at all, has the same sum in one case of 2^15
            words = torch.randint(1 << 15, (rows, 8), dtype=torch.int32, device=device)
            assert read_sectors(words, device, reads).sum() == words[:, 0].sum()

    @pytest.mark.parametrize("row_words", [1, 3, 16, 100, 1024, 1500])
    @pytest.mark.parametrize(("rows", "reads"), [(1, 1), (64, 4), (256, 1)])
    def test_every_word_of_every_row_is_read_once(
        self, device: torch.device, row_words: int, rows: int, reads: int
    ) -> None:
        words = torch.randint(1 << 10, (rows, row_words), dtype=torch.int32, device=device)
        assert read_rows(words, device, reads).sum() == words.sum()

    def test_neighbours_are_read_far_from_each_other(self, device: torch.device) -> None:
        rows, lanes = 1 << 13, 512
        words = torch.arange(rows, dtype=torch.int32, device=device)[:, None].repeat(1, 8)
        means = read_sectors(words, device, 1) / lanes
        assert torch.all((means - rows / 2).abs() < rows / 16)  # of an order by number: 0 to 15 sixteenths

    def test_touched_sectors(self, device: torch.device) -> None:
        positions = torch.tensor([[-1, 0, 1], [7, 8, 16], [17, -1, 8]], device=device)
        assert touched_sectors(positions, 4) == 3
        assert touched_sectors(positions, 8) == 4
        assert touched_sectors(positions, 32) == 6
        assert touched_sectors(positions, 64) == 6
        assert touched_sectors(positions[:0], 4) == 0

    def test_runs_that_count(self, device: torch.device) -> None:
        runs: list[int] = []
        seconds = run_seconds(lambda: runs.append(0), device)
        assert (len(seconds), len(runs)) == ((5, 11) if device.type == "cuda" else (1, 2))
