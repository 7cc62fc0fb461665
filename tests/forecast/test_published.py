import pytest

from gradientmail.forecast.published import (
    BANDWIDTHS,
    GOODPUT,
    GRID_GBIT_S,
    bandwidths,
    goodput,
    nearest_point,
)


def test_every_published_bandwidth_lies_on_the_grid() -> None:
    values = [value for rows in BANDWIDTHS.values() for row in rows for value in row]
    assert len(values) == 75
    off = [abs(GRID_GBIT_S[nearest_point(value)] - value) / value for value in values]
    assert max(value for value, gbit_s in zip(off, values, strict=True) if gbit_s > 1) < 0.05


def test_the_table_of_bandwidths_is_reproduced() -> None:
    entries = list(bandwidths())
    assert sum(entry.off == 0 for entry in entries) == 63
    assert all(abs(entry.off) <= 1 for entry in entries)


@pytest.mark.parametrize(("groups", "chips", "stopped_s"), [(8, 1_200_000, 28.7)])
def test_eight_groups_keep_the_published_goodput(
    groups: int, chips: int, stopped_s: float
) -> None:
    published = GOODPUT[str(groups)][3] / 100
    assert goodput(chips, groups, stopped_s, hours=6.0) == pytest.approx(published, abs=0.02)


def test_interruptions_of_one_group_stop_nobody_else() -> None:
    alone, four = (goodput(150_000 * n, n, 28.7, hours=6.0) for n in (1, 4))
    assert alone == pytest.approx(four, abs=0.04)
