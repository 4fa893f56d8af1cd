"""The content-addressed cache: equal keys share an entry, and any difference in the key leads to another one."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from perdure.base.errors import InputError
from perdure.runs.cache import Cache, cache_digest, record_cache, weights_digest

KEY = {"method": "grad", "samples": 40, "shares": [0.1, 0.3], "layer": None, "options": {"epsilon": 1e-6}}


def test_equal_keys_share_an_entry_and_its_tensors_are_computed_once(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"values": torch.arange(4.0), "counts": torch.tensor([2, 3])}

    first = Cache(tmp_path).entry("maps", KEY).tensors("fold-1", compute)
    again = Cache(tmp_path).entry("maps", dict(reversed(KEY.items()))).tensors("fold-1", compute)
    assert calls == [1]
    for name in ("values", "counts"):
        assert torch.equal(first[name], again[name])
        assert first[name].dtype == again[name].dtype
    other_file = Cache(tmp_path).entry("maps", KEY).tensors("fold-2", compute)
    assert calls == [1, 1]
    assert torch.equal(other_file["values"], first["values"])


def test_an_entry_stores_its_key(tmp_path):
    entry = Cache(tmp_path).entry("maps", KEY)
    assert entry.folder.parent == tmp_path / "maps"
    assert json.loads(entry.file("key.json").read_text()) == {"kind": "maps", **KEY}


@pytest.mark.parametrize(
    "change",
    [
        {"method": "lrp"},
        {"samples": 41},
        {"samples": 40.5},
        {"shares": [0.3, 0.1]},
        {"layer": "last"},
        {"options": {"epsilon": 1e-5}},
        {"options": {}},
        {"seed": 0},
    ],
)
def test_every_difference_in_the_key_gives_another_entry(tmp_path, change):
    cache = Cache(tmp_path)
    entry, changed = cache.entry("maps", KEY), cache.entry("maps", {**KEY, **change})
    assert entry.folder != changed.folder
    entry.tensors("values", lambda: {"x": torch.zeros(1)})
    assert changed.tensors("values", lambda: {"x": torch.ones(1)})["x"] == 1


def test_the_kind_is_part_of_the_key(tmp_path):
    cache = Cache(tmp_path)
    assert cache.entry("maps", KEY).folder.name != cache.entry("pairs", KEY).folder.name


def test_a_changed_key_file_is_refused(tmp_path):
    file = Cache(tmp_path).entry("maps", KEY).file("key.json")
    file.write_text(json.dumps({"kind": "maps", **KEY, "samples": 41}))
    with pytest.raises(
        InputError, match=r"key\.json: the stored key differs from the key of this entry; delete the folder"
    ):
        Cache(tmp_path).entry("maps", KEY)
    file.write_text("nonsense")
    with pytest.raises(InputError, match=r"key\.json, line 1: not JSON"):
        Cache(tmp_path).entry("maps", KEY)


def test_an_interrupted_computation_leaves_no_file(tmp_path):
    entry = Cache(tmp_path).entry("maps", KEY)

    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        entry.tensors("values", fail)
    assert [file.name for file in entry.folder.iterdir()] == ["key.json"]
    assert entry.tensors("values", lambda: {"x": torch.ones(1)})["x"] == 1


def test_the_cache_of_a_record_is_inside_it(tmp_path):
    assert record_cache(tmp_path / "record").folder == tmp_path / "record" / "cache"


def test_the_digest_of_arrays_depends_on_dtype_shape_and_every_value():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    changed = array.copy()
    changed[1, 2] = np.nextafter(changed[1, 2], np.float32(9))
    different = [
        array.astype(np.float64),
        array.view(np.int32),
        array.reshape(3, 2),
        array.T,
        array.ravel(),
        changed,
        array[::-1],
    ]
    digests = [cache_digest(array), *(cache_digest(other) for other in different)]
    assert len(set(digests)) == len(digests)
    assert cache_digest(array) == cache_digest(array.copy()) == cache_digest(torch.from_numpy(array))
    assert cache_digest(np.asfortranarray(array)) == cache_digest(array)


def test_the_digest_depends_on_the_order_and_number_of_parts():
    first, second = np.zeros(2), np.ones(2)
    digests = {
        cache_digest(first, second),
        cache_digest(second, first),
        cache_digest(first),
        cache_digest(first, second, None),
    }
    assert len(digests) == 4
    assert cache_digest({"a": 1, "b": 2}) == cache_digest({"b": 2, "a": 1})
    assert cache_digest("1") != cache_digest(1)
    assert cache_digest(1, 2) != cache_digest(12)


def test_the_digest_of_weights_covers_parameters_and_buffers():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = weights_digest(network)
    assert weights_digest(network) == before
    network.get_buffer("1.running_mean")[0] += 1
    with_buffer = weights_digest(network)
    network.get_parameter("0.bias").data[1] += 1
    assert len({before, with_buffer, weights_digest(network)}) == 3
    layer = nn.Linear(3, 2)
    assert weights_digest(nn.ModuleDict({"a": layer})) != weights_digest(nn.ModuleDict({"b": layer}))
