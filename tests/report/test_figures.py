"""Pictures as numbers: what a heat map and a histogram show of a result."""

import re
from dataclasses import replace

import pytest
import torch

from metalwright.check import picture
from metalwright.check.data import compare
from metalwright.check.picture import UlpBin
from metalwright.check.tolerance import DEFAULTS
from metalwright.report.figures import heat_map, histogram


def result_of(got, expected):
    return compare(
        "out",
        got=got,
        reverse=got,
        written=torch.ones(got.shape, dtype=torch.bool),
        own=expected,
        wide=expected.double(),
        tolerance=DEFAULTS[torch.float32],
        condition=lambda: None,
    )


def cells(path):
    """The cells that a path covers."""
    found = set()
    for column, row, length in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\3z", path):
        found |= {(int(row), int(column) + i) for i in range(int(length))}
    return found


def test_each_cell_is_in_one_layer_and_the_wrong_ones_stand_out():
    expected = torch.ones(6, 8)
    got = expected.clone()
    got[2, 3:5] = 1.5
    got[5, 7] = 1000.0
    got[0, 0] = torch.nan
    map = heat_map(result_of(got, expected))
    layers = {layer.kind: cells(layer.path) for layer in map.layers}
    assert sum(len(part) for part in layers.values()) == 48 == len(set().union(*layers.values()))
    assert layers["level-1"] == {(2, 3), (2, 4)} and layers["level-5"] == {(5, 7)}
    assert layers["not-finite"] == {(0, 0)}
    assert "6 × 8" in map.caption and "one element" in map.caption


def test_errors_of_one_size_are_one_level():
    map = heat_map(result_of(torch.full((4,), 2.0), torch.ones(4)))
    assert [(layer.kind, layer.label) for layer in map.layers] == [("level-5", "wrong, off by 1")]


def test_a_result_that_is_right_has_no_map():
    assert heat_map(result_of(torch.ones(4), torch.ones(4))) is None


@pytest.mark.parametrize("shape", [(100_000,), (1, 5000), (4097, 1)])
def test_a_long_result_is_folded_and_its_rows_are_numbered_by_elements(shape):
    expected = torch.ones(shape)
    map = heat_map(result_of(expected * 2, expected))
    assert "as text is read" in map.caption
    seen = result_of(expected * 2, expected).error_map
    assert map.down[1].label == str(seen.columns * (round((map.down[1].at - map.down[0].at) / map.cell)))


def test_numbers_beside_the_map_do_not_touch():
    expected = torch.ones(300, 20_000)
    map = heat_map(result_of(expected + torch.eye(300, 20_000), expected))
    assert len(map.along) > 3 and len(map.down) > 3
    widths = [7 * len(tick.label) for tick in map.along]
    assert all(b.at - a.at > w for a, b, w in zip(map.along, map.along[1:], widths))


def test_bars_are_in_proportion_and_gaps_are_marked():
    bins = (UlpBin(0, 200), UlpBin(1, 50), UlpBin(2, 1), UlpBin(64, 100), UlpBin(2**24, 1))
    bars = histogram(replace(result_of(torch.ones(1), torch.ones(1)), ulps=bins))
    assert [bar.label for bar in bars] == ["0", "1", "2", "33 – 64", "2²³ – 2²⁴"]
    assert [bar.share for bar in bars] == [100, 25, 0.5, 50, 0.5]
    assert [bar.gap for bar in bars] == [False, False, False, True, True]


def test_a_blank_cell_is_in_no_layer():
    seen = picture.error_map(torch.zeros(70), {picture.VALUE: torch.ones(70, dtype=torch.bool)})
    map = heat_map(replace(result_of(torch.zeros(70), torch.ones(70)), error_map=seen))
    assert sum(len(cells(layer.path)) for layer in map.layers) == 70
