import pytest

from gradientmail.forecast.fleet import Prices
from gradientmail.forecast.ledger import GB, MONTH_S, Account, Lane, Stored
from gradientmail.store.buckets import FIRST_BYTES, PART_BYTES


def test_a_large_object_goes_up_in_parts_which_are_billed_one_by_one() -> None:
    account = Account()
    account.put(PART_BYTES)
    assert account.puts == 1
    account.put(PART_BYTES + 1)
    assert account.puts == 1 + 2 + 2  # begin, two parts, complete
    assert account.up_bytes == 2 * PART_BYTES + 1


def test_a_large_object_is_read_in_parts_which_are_billed_one_by_one() -> None:
    account = Account()
    account.get(0)
    account.get(FIRST_BYTES, 3)
    assert account.gets == 1 + 3
    account.get(FIRST_BYTES + PART_BYTES + 1)
    assert account.gets == 1 + 3 + 1 + 2  # the first, two parts
    assert account.down_bytes == 4 * FIRST_BYTES + PART_BYTES + 1


def test_the_bill_is_each_count_by_its_price() -> None:
    account = Account(puts=2_000_000, gets=3_000_000, lists=1_000_000, down_bytes=int(5 * GB))
    prices = Prices(put_per_million=5, get_per_million=0.4, list_per_million=5, egress_gb=0.09)
    assert account.cost(prices) == pytest.approx(10 + 1.2 + 5 + 0.45)


def test_what_is_stored_costs_by_the_time_it_lies_there() -> None:
    stored = Stored()
    stored.add(int(10 * GB), now=0.0)
    stored.add(-int(5 * GB), now=MONTH_S / 2)
    stored.advance(MONTH_S)
    assert stored.peak_bytes == 10 * GB
    assert stored.cost(Prices(stored_gb_month=0.02)) == pytest.approx(0.02 * 7.5)


def test_a_line_does_one_thing_after_another() -> None:
    lane = Lane(rate=10.0)
    assert lane.take(20, now=1.0) == (1.0, 3.0)
    assert lane.take(10, now=2.0) == (3.0, 4.0)
    assert lane.take(10, now=9.0) == (9.0, 10.0)
    assert lane.busy_s == 4.0


def test_accounts_add_up() -> None:
    both = Account(1, 2, 3, 4, 5, 6).plus(Account(10, 20, 30, 40, 50, 60))
    assert both == Account(11, 22, 33, 44, 55, 66)
    assert both.requests == 11 + 22 + 33 + 44
