"""Shards of a study: every unit belongs to exactly one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.base.errors import InputError
from perdure.engine import Shard, ShardEngine, StatusFolder, Unit, run_units
from perdure.engine.local import LocalEngine


def value(context, number):
    return number


def make_units(groups, finished=()):
    return [
        Unit(f"test-{index}", str(index), value, {"number": index}, group=group, finished=index in finished)
        for index, group in enumerate(groups)
    ]


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=30), st.integers(1, 6))
def test_every_unit_is_in_exactly_one_shard_and_groups_stay_together(groups, count):
    units = make_units(groups)
    parts = [Shard(index, count).contains(units) for index in range(count)]
    assert all(sum(column) == 1 for column in zip(*parts, strict=True))
    for part in parts:
        for group in {group for group in groups if group}:
            assert len({is_own for is_own, name in zip(part, groups, strict=True) if name == group}) == 1
    sizes = [sum(part) for part in parts]
    if not any(groups):
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_shards_together_do_all_the_work_whatever_is_finished(tmp_path):
    status = StatusFolder.of(tmp_path)
    done: set[int] = set()
    for index in (2, 0, 1):
        with ShardEngine(LocalEngine(1, status), Shard(index, 3)) as engine:
            units = make_units([""] * 10, finished=done)
            result = run_units(engine, units)
        new = {outcome.value for outcome in result.outcomes if outcome.value is not None}
        assert not new & done
        assert {outcome.unit.name for outcome in result.elsewhere} == {
            unit.name for unit in units if int(unit.label) not in done | new
        }
        done |= new
    assert done == set(range(10))
    assert status.read_plans()[0].finished


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/4/2", "1.5/4"])
def test_wrong_shards_are_refused(text):
    with pytest.raises(InputError, match="--shard"):
        Shard.parse(text)


def test_shards_count_from_one():
    assert Shard.parse("3/16") == Shard(2, 16)
    assert str(Shard(2, 16)) == "3/16"
