"""A user's networks and data: growing heads, ready models, references to code and their permissions, data files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import perdure
from perdure.audits import ShapcSettings, audit_shapc, network_bias, record_bias
from perdure.audits.bias.measure import BiasSettings
from perdure.base.errors import InputError
from perdure.base.fingerprints import data_fingerprint, file_fingerprint
from perdure.explain import Series, Table
from perdure.record.references import FILE, make_reference, read_references
from perdure.runs import UserData, load_run
from perdure.runs.data_sources import read_user_data
from perdure.runs.networks import UserNetworks, resize_heads, usable_network
from perdure.runs.permissions import CodeNotAllowedError, allow_code, permissions_file, store_references

SETTINGS = ShapcSettings(samples=8, background=4, untrained=2)


def examples_of(task: int, count: int = 12, classes: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(task)
    return torch.randn(count, 4, generator=generator), torch.arange(count) % classes + classes * task


DATA = [examples_of(task) for task in range(3)]


class Growing(nn.Module):
    """A network whose only layer after the body grows with the tasks."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, outputs)
        self.register_buffer("active_units", torch.ones(outputs))

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x))


class Heads(nn.Module):
    """A network with one head per task."""

    def __init__(self, tasks: int = 1) -> None:
        super().__init__()
        self.body = nn.ModuleList([nn.Linear(4, 6), nn.ReLU()])
        self.heads = nn.ModuleList([nn.Linear(6, 2) for _ in range(tasks)])

    def forward(self, x: Tensor) -> Any:
        for layer in self.body:
            x = layer(x)
        return torch.cat([head(x) for head in self.heads], dim=1)


def record(path: Path, networks: list[Any], **options: Any) -> Path:
    recorder = perdure.Recorder(path, tasks=len(networks), **options)
    for step, network in enumerate(networks):
        recorder.after_task(network, accuracy=[0.9 if task <= step else 0.0 for task in range(len(networks))])
    return path


@pytest.mark.parametrize(("kind", "first"), [(Growing, 2), (Heads, 1)])
@pytest.mark.parametrize("built", [1, 2, 3])
def test_checkpoints_with_growing_heads_load_as_they_are(tmp_path, kind, first, built):
    torch.manual_seed(0)
    networks = [kind(first * (step + 1)) for step in range(3)]
    path = record(tmp_path / "run", networks)
    run = load_run(path, lambda: kind(first * built), DATA, sequence=True)
    for step, network in enumerate(networks):
        loaded = run.network(step)
        assert {name: value.tolist() for name, value in loaded.state_dict().items()} == {
            name: value.tolist() for name, value in network.state_dict().items()
        }
        assert loaded(DATA[0][0]).shape == (12, 2 * (step + 1))
    assert run.initial_network(1)(DATA[0][0]).shape == (12, 6)
    result = audit_shapc(path, network=lambda: kind(first * built), data=DATA, settings=SETTINGS, examples=4)
    assert 0 < result.mean.mean < 1
    assert np.isfinite(result.calibrated.mean)


def test_new_outputs_of_an_untrained_network_are_drawn_and_other_differences_are_refused(tmp_path):
    path = record(tmp_path / "run", [Growing(2), Growing(4), Growing(6)])
    run = load_run(path, Growing, DATA, sequence=True)
    first, again, other = run.initial_network(1), run.initial_network(1), run.initial_network(2)
    assert torch.equal(first.head.weight, again.head.weight)  # type: ignore[union-attr, arg-type]
    assert not torch.equal(first.head.weight[4:], other.head.weight[4:])  # type: ignore[index, union-attr]
    wide = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 2))
    with pytest.raises(InputError, match="does not fit the network"):
        load_run(path, lambda: wide, DATA).network(0)
    network = Growing(2)
    assert resize_heads(network, Growing(2).state_dict()) == []
    last_layer = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
    resize_heads(last_layer, nn.ModuleList([nn.Linear(2, 2)]).state_dict())
    assert len(last_layer) == 2  # an entry without weights is not missing in the checkpoint


def test_networks_are_functions_instances_or_ready_models(tmp_path):
    torch.manual_seed(0)
    networks = [Growing(6) for _ in range(3)]
    path = record(tmp_path / "run", networks)
    expected = audit_shapc(path, network=lambda: Growing(6), data=DATA, settings=SETTINGS, examples=4).mean
    instance = Growing(6)
    before = copy.deepcopy(instance.state_dict())
    assert audit_shapc(path, network=instance, data=DATA, settings=SETTINGS, examples=4).mean == expected
    assert all(torch.equal(value, before[name]) for name, value in instance.state_dict().items())
    for ready in (networks, lambda step: networks[step]):
        result = audit_shapc(path, network=ready, data=DATA, settings=SETTINGS, examples=4)
        assert result.mean == expected
    with pytest.raises(InputError, match=r"2 models for 3 steps; expected one model after each step"):
        load_run(path, networks[:2], DATA)
    with pytest.raises(InputError, match=r"expected a function that returns a torch.nn.Module, got a int"):
        load_run(path, lambda: 3, DATA)
    assert UserNetworks(lambda shape, outputs: nn.Linear(shape[0], outputs), ((4,), 6)).blank()(DATA[0][0]).shape == (
        12,
        6,
    )
    assert UserNetworks(lambda width=3, depth=2: nn.Linear(4, width), ((4,), 6)).blank()(DATA[0][0]).shape == (12, 3)


def test_ready_models_are_told_apart_by_their_outputs(tmp_path):
    """The values of one set of models must not be reused for another one in the same record."""
    x, y = (torch.cat(parts).numpy() for parts in zip(*DATA, strict=True))
    sets = [(x, y % 2)] * 3
    recorder = perdure.Recorder(tmp_path / "run", tasks=3)
    for _ in range(3):
        recorder.after_task(accuracy=[0.9, 0.8, 0.7])
    rng = np.random.default_rng(0)
    models = [LogisticRegression(C=10.0**k).fit(x, rng.permutation(y % 2)) for k in range(3)]
    first = audit_shapc(tmp_path / "run", network=models, data=sets, examples=6)
    other = audit_shapc(tmp_path / "run", network=models[::-1], data=sets, examples=6)
    assert first.settings["method"] == "exact_shapley"
    assert first.folder != other.folder
    assert np.isfinite(first.calibrated.mean)  # the floor comes from models that were fitted to permuted labels
    same = audit_shapc(tmp_path / "run", network=[models[0]] * 3, data=sets, examples=6)
    assert same.mean.mean == 1
    settings = BiasSettings(methods=["lime"], samples=50)
    biases = [
        record_bias(tmp_path / "run", network=order, data=sets, examples=4, settings=settings)["lime"].overall.mean
        for order in (models, models[::-1])
    ]
    assert biases[0] != biases[1]
    functions = [model.predict_proba for model in models]
    function = audit_shapc(tmp_path / "run", network=functions, data=sets, examples=4, out=tmp_path / "functions")
    assert "cannot be fitted again" in str(function.calibrated.reason)


def test_a_single_output_of_a_classifier_becomes_two_scores():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 1))
    x, y = DATA[0]
    usable = usable_network(net, x, None)
    torch.testing.assert_close(usable(x), torch.cat([-net(x), net(x)], dim=1))
    assert usable_network(net, x, None, classes=False)(x).shape == (12, 1)
    result = network_bias(net, (x, y), examples=12, settings=BiasSettings(methods=["grad"], permutations=20))
    share = float(((net(x)[:, 0] > 0) == (y == 1)).float().mean())
    assert 0 < share < 1
    assert result.settings["predicted"] == pytest.approx(share)


def test_regression_and_several_labels_are_explained_where_that_is_defined(tmp_path):
    torch.manual_seed(0)
    x = DATA[0][0]
    path = record(tmp_path / "run", [nn.Linear(4, 1) for _ in range(2)])
    numbers = [(x, x[:, 0] * 1.5)] * 2
    result = audit_shapc(path, network=lambda: nn.Linear(4, 1), data=numbers, settings=SETTINGS, examples=4)
    assert result.settings["target"] == 0
    assert np.isfinite(result.calibrated.mean)
    assert all(np.isnan(value.mean) for value in result.outcomes.values())  # nothing is right or wrong
    assert (
        audit_shapc(path, network=lambda: nn.Linear(4, 1), data=numbers, settings=SETTINGS, examples=4).mean
        == result.mean
    )
    with pytest.raises(InputError, match="MeGe and ReCo compare explanations of right and wrong decisions; regression"):
        perdure.audits.across_checkpoints(path, network=lambda: nn.Linear(4, 1), data=numbers)
    path = record(tmp_path / "labels", [nn.Linear(4, 3) for _ in range(2)])
    several = [(x, (x[:, :3] > 0).long())] * 2
    with pytest.raises(InputError, match="multi-label data have no single true or predicted class; pass target="):
        audit_shapc(path, network=lambda: nn.Linear(4, 3), data=several, settings=SETTINGS)
    chosen = ShapcSettings(samples=8, background=4, untrained=2, target=2)
    result = audit_shapc(path, network=lambda: nn.Linear(4, 3), data=several, settings=chosen, examples=4)
    assert result.settings["explained"] == "the logit of output 3"
    with pytest.raises(InputError, match="multi-label data have no single"):
        network_bias(nn.Linear(4, 3), several[0], settings=BiasSettings(methods=["grad"]))
    bias = network_bias(nn.Linear(4, 3), several[0], target=1, examples=4, settings=BiasSettings(methods=["grad"]))
    assert np.isfinite(bias["grad"].overall.mean)


def test_numbers_as_labels_of_a_classifier_are_refused(tmp_path):
    path = record(tmp_path / "run", [nn.Linear(4, 3) for _ in range(2)])
    numbers = [(DATA[0][0], DATA[0][1] + 0.5)] * 2
    with pytest.raises(
        InputError, match="the labels are not integers, as for a regression model, but the model has 3 outputs"
    ):
        audit_shapc(path, network=lambda: nn.Linear(4, 3), data=numbers, settings=SETTINGS)
    with pytest.raises(InputError, match="but the model has 3 outputs"):
        network_bias(nn.Linear(4, 3), numbers[0], settings=BiasSettings(methods=["grad"]))


def test_the_bias_of_a_network_is_measured_on_the_tasks_of_its_data_and_on_series():
    torch.manual_seed(0)
    settings = BiasSettings(methods=["grad", "lime"], permutations=20)
    several = network_bias(nn.Linear(4, 6), DATA, examples=6, settings=settings)
    assert several.examples == 6
    with_background = network_bias(nn.Linear(4, 6), (*DATA[0], DATA[1][0]), examples=6, settings=settings)
    assert with_background.settings["background"] == 12

    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Any:
            return self.head(torch.tanh(x).sum(1))

    series = (torch.randn(8, 5, 3), torch.arange(8) % 2)
    result = network_bias(perdure.adapt(Sums(), Series("ntc")), series, examples=4, settings=settings)
    assert result.settings["player_count"] == 5


def test_heads_in_a_dictionary_of_modules_grow_too():
    class Named(nn.Module):
        def __init__(self, names: str) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({name: nn.Linear(2, 2) for name in names})

    for names in ("a", "abc"):
        network, target = Named("ab"), Named(names)
        resize_heads(network, target.state_dict())
        network.load_state_dict(target.state_dict())
        assert list(network.heads) == list(names)
        assert all(torch.equal(network.heads[name].weight, target.heads[name].weight) for name in names)  # type: ignore[arg-type]


def test_data_are_lists_of_arrays_datasets_or_loaders():
    expected = UserData.checked(DATA).fingerprint
    assert UserData.checked([TensorDataset(*pair) for pair in DATA]).fingerprint == expected
    assert UserData.checked([DataLoader(TensorDataset(*pair), batch_size=5) for pair in DATA]).fingerprint == expected
    assert len(UserData.checked(DATA[0]).tasks) == 1
    assert len(UserData.checked(DATA[:2]).tasks) == 2
    assert len(UserData.checked(TensorDataset(*DATA[0])).tasks) == 1
    column = UserData.checked([(DATA[0][0], DATA[0][1][:, None])])
    assert column.labels(0).tolist() == DATA[0][1].tolist()


def test_series_need_a_layout_in_every_audit(tmp_path):
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Any:
            return self.head(x.sum(1))

    torch.manual_seed(0)
    sets = [(torch.randn(8, 5, 3), torch.arange(8) % 2) for _ in range(2)]
    path = record(tmp_path / "run", [Sums(), Sums()])
    with pytest.raises(
        InputError, match=r"inputs of shape \(5, 3\) have no stated layout. State the layout"
    ) as refusal:
        audit_shapc(path, network=Sums, data=sets, settings=SETTINGS)
    assert "--layout nct for (n, channels, time), or --layout ntc" in str(refusal.value.cli)
    run = load_run(path, lambda: perdure.adapt(Sums(), Series("ntc")), sets)
    assert run.inputs == Series("ntc")
    result = audit_shapc(
        path, network=lambda: perdure.adapt(Sums(), Series("ntc")), data=sets, settings=SETTINGS, examples=4
    )
    assert np.isfinite(result.mean.mean)


def test_groups_of_columns_are_compared_as_one_feature(tmp_path):
    """Two networks that use different columns of one feature have the same reasons only if the columns are joined."""
    first, second = nn.Linear(6, 2), nn.Linear(6, 2)
    with torch.no_grad():
        for network, column, sign in ((first, 0, 1.0), (second, 1, -1.0)):
            network.weight.zero_()
            network.bias.zero_()
            network.weight[:, column] = sign * torch.tensor([-1.0, 1.0])
            network.weight[:, 2:] = torch.tensor([[0.01], [-0.01]])
    x = torch.zeros(10, 6)
    x[:, :2] = torch.nn.functional.one_hot(torch.arange(10) % 2, 2).float() * 2 - 1
    x[:, 2:] = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    sets = [(x, (x[:, 0] > 0).long())] * 2
    path = record(tmp_path / "run", [first, second])
    settings = ShapcSettings(method="gradient_x_input", untrained=0, top=0.2)
    table = Table({"color": [0, 1]})
    joined = audit_shapc(path, network=lambda: perdure.adapt(nn.Linear(6, 2), table), data=sets, settings=settings)
    separate = audit_shapc(path, network=lambda: nn.Linear(6, 2), data=sets, settings=settings)
    assert separate.mean.mean == 0
    assert joined.mean.mean > 0.1


CODE = """
import torch
from neighbor import WIDTH


def make_net():
    return torch.nn.Sequential(torch.nn.Linear(4, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 6))


def test_sets():
    return [(torch.arange(32.0).reshape(8, 4) / 9 + task, torch.arange(8) % 2 + 2 * task) for task in range(3)]


object_sets = test_sets()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A user's folder with code and its neighbor, and the record of a run."""
    (tmp_path / "models.py").write_text(CODE)
    (tmp_path / "neighbor.py").write_text("WIDTH = 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def networks() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6)) for _ in range(3)]


@pytest.mark.parametrize("data", ["models.py:test_sets", "models.py:object_sets", "models:test_sets"])
def test_a_record_refers_to_code_that_runs_only_after_it_was_allowed(project, data):
    path = record(project / "runs/mine", networks(), network="models.py:make_net", data=data)
    stored = json.loads((path / FILE).read_text())
    assert stored["network"]["target"] == "../../models.py:make_net"
    assert stored["network"]["sha256"] == file_fingerprint(project / "models.py")
    assert len(stored["data"]["fingerprint"]) == 64
    assert "Linear" not in (path / FILE).read_text()
    with pytest.raises(CodeNotAllowedError) as refusal:
        perdure.audit(path, shapc=SETTINGS, examples=4)
    assert f"network: make_net in {project / 'models.py'} (SHA-256 {stored['network']['sha256'][:12]})" in str(
        refusal.value
    )
    assert str(refusal.value).endswith("pass allow_code=True")
    assert str(refusal.value.cli).endswith("pass --allow-code")
    audit = perdure.audit(path, shapc=SETTINGS, examples=4, allow_code=True)
    assert audit.shapc[0].mean == perdure.audit(path, shapc=SETTINGS, examples=4).shapc[0].mean  # remembered
    (project / "models.py").write_text(CODE + "\n# changed\n")
    with pytest.raises(CodeNotAllowedError, match="The file has changed since it was stored or allowed"):
        load_run(path)
    allow_code([path])
    assert load_run(path).network(0)(torch.ones(1, 4)).shape == (1, 6)
    assert json.loads(permissions_file().read_text()) == {
        str(project / "models.py"): file_fingerprint(project / "models.py")
    }


def test_a_record_never_runs_code_by_itself(project):
    (project / "models.py").write_text(CODE)
    path = record(project / "runs/mine", networks(), network="models.py:make_net", data="models.py:test_sets")
    (project / "models.py").write_text("raise SystemExit('executed')\n")
    perdure.audit(path)
    perdure.Record.open(path)
    read_references(path)
    with pytest.raises(CodeNotAllowedError):
        load_run(path)
    (path / FILE).write_text(json.dumps({"schema": 1, "network": {"target": "os:system", "sha256": ""}}))
    with pytest.raises(InputError, match=r"references.json"):
        load_run(path)


def test_changed_data_are_detected(project):
    path = record(project / "runs/mine", networks(), network="models.py:make_net", data="models.py:test_sets")
    allow_code([path])
    load_run(path)
    (project / "models.py").write_text(CODE.replace("/ 9 + task", "/ 8 + task"))
    allow_code([path])
    with pytest.raises(InputError, match=r"the test data of .*models.py:test_sets differ .* pass data="):
        load_run(path)
    np.savez(project / "tests.npz", x=np.ones((6, 4)), y=np.arange(6), task=[1, 1, 2, 2, 3, 3])
    store_references(path, data="tests.npz")
    assert load_run(path).data.labels(2).tolist() == [4, 5]
    np.savez(project / "tests.npz", x=np.zeros((6, 4)), y=np.arange(6), task=[1, 1, 2, 2, 3, 3])
    with pytest.raises(InputError, match=r"the test data of .*tests.npz differ"):
        load_run(path)
    run = load_run(path, data=[(np.ones((2, 4)), np.array([0, 1]))] * 3)
    assert run.data.labels(0).tolist() == [0, 1]


def module_level() -> nn.Module:
    return nn.Linear(4, 2)


def test_functions_are_stored_by_their_place(tmp_path):
    reference = make_reference(module_level, "network", tmp_path)
    assert reference.target.endswith(":module_level")
    assert reference.sha256 == file_fingerprint(Path(__file__))
    package = make_reference(load_run, "network", tmp_path)
    assert package.target == "perdure.runs.loaded_run:load_run"

    def inner() -> nn.Module:
        return nn.Linear(4, 2)

    for function in (lambda: nn.Linear(4, 2), inner):
        with pytest.raises(InputError, match=r"expected a function at the top level of a module \(not a lambda"):
            make_reference(function, "network", tmp_path)
    with pytest.raises(InputError, match=r"expected file.py:function or package.module:function"):
        make_reference("models.py", "network", tmp_path)
    with pytest.raises(InputError, match=r"there is no file nowhere.py"):
        make_reference("nowhere.py:make", "network", tmp_path)
    with pytest.raises(InputError, match="no such module"):
        make_reference("no_such_package.models:make", "network", tmp_path)


def test_the_fingerprint_depends_on_every_value_and_on_their_arrangement():
    x, y = np.arange(6.0).reshape(3, 2), np.arange(3)
    first = data_fingerprint([(x, y)])
    assert first == data_fingerprint([(x.copy(), y.copy())])
    assert first == data_fingerprint(([torch.tensor(x), torch.tensor(y)],))
    variants = [[(x + 1e-12, y)], [(x, y + 1)], [(x.T, y)], [(x.astype(np.float32), y)], [(x, y)] * 2, {"a": (x, y)}]
    assert len({first, *(data_fingerprint(variant) for variant in variants)}) == 7
    with pytest.raises(InputError, match="expected arrays, a Dataset or a DataLoader, got a object"):
        data_fingerprint([object()])


def image_folder(path: Path) -> Path:
    for number, name in enumerate(("cat", "dog")):
        (path / name).mkdir(parents=True)
        for index in range(2):
            Image.new("RGB", (5, 4), (50 * number, 20 * index, 0)).save(path / name / f"{index}.png")
    return path


def test_data_files(tmp_path):
    x, y = np.arange(24.0).reshape(6, 4), np.array([0, 1, 0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    torch.save((torch.tensor(x), torch.tensor(y)), tmp_path / "b.pt")
    torch.save(
        {"x": torch.tensor(x), "y": torch.tensor(y), "task": torch.tensor([1, 1, 1, 2, 2, 2])}, tmp_path / "c.pt"
    )
    lines = [
        ",".join(map(str, [*row, 1 + (index > 2), label])) for index, (row, label) in enumerate(zip(x, y, strict=True))
    ]
    (tmp_path / "d.csv").write_text("a,b,c,d,task,label\n" + "\n".join(lines) + "\n")
    expected = UserData.checked([(x, y)]).fingerprint
    assert UserData.checked(read_user_data(str(tmp_path / "a.npz"))).fingerprint == expected
    assert UserData.checked(read_user_data(str(tmp_path / "b.pt"))).fingerprint == expected
    halves = UserData.checked([(x[:3], y[:3]), (x[3:], y[3:])]).fingerprint
    assert UserData.checked(read_user_data(str(tmp_path / "c.pt"))).fingerprint == halves
    assert UserData.checked(read_user_data(str(tmp_path / "d.csv"))).fingerprint == halves
    (tmp_path / "tasks").mkdir()
    np.savez(tmp_path / "tasks/1.npz", x=x[:3], y=y[:3])
    np.savez(tmp_path / "tasks/2.npz", x=x[3:], y=y[3:])
    assert UserData.checked(read_user_data(str(tmp_path / "tasks"))).fingerprint == halves
    images, labels = read_user_data(str(image_folder(tmp_path / "pets")))
    assert images.shape == (4, 3, 4, 5)
    assert labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(images[3, :, 0, 0], np.array([50, 20, 0]) / 255, atol=1e-6)
    image_folder(tmp_path / "visits/task-1")
    image_folder(tmp_path / "visits/task-2")
    assert len(read_user_data(str(tmp_path / "visits"))) == 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((2, 3))}, "expected arrays x and y, got x"),
        ({"x": np.ones((2, 3)), "y": np.arange(2), "task": np.array([0, 1])}, "expected the task of each example"),
        ({"x": np.ones((2, 3)), "y": np.arange(2), "task": np.array([1, 9])}, "expected tasks 1 to at most 2, got 9"),
        ({"x": np.ones((3, 3)), "y": np.arange(3), "task": np.array([1, 3, 3])}, "there are no examples of task 2"),
    ],
)
def test_unusable_data_files_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_user_data(str(tmp_path / "a.npz"))
    with pytest.raises(InputError, match=r"no such file; expected file.py:function, a .npz, .pt or .csv file"):
        read_user_data(str(tmp_path / "none.npz"))
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"unknown kind of file '.parquet'"):
        read_user_data(str(tmp_path / "a.parquet"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "b.csv").write_text("a,outcome,f\n1,2,3\n4,5,6\n")
    with pytest.raises(InputError, match="no label column; expected a column named label, class, target"):
        read_user_data(str(tmp_path / "b.csv"))
    with pytest.raises(InputError, match="no images in <class>/"):
        read_user_data(str(tmp_path / "empty"))


def test_text_columns_of_a_table_are_refused_with_the_reason(tmp_path):
    words = ["the", "pump", "makes", "a", "strange", "noise", "after", "the", "second", "start"]
    rows = [" ".join(np.random.default_rng(index).permutation(words)) for index in range(40)]
    (tmp_path / "a.csv").write_text("note,label\n" + "\n".join(f"{row},{index % 2}" for index, row in enumerate(rows)))
    with pytest.raises(InputError, match=r"column note: expected numbers or categories, got text of 10 words per cell"):
        read_user_data(str(tmp_path / "a.csv"))
    (tmp_path / "b.csv").write_text("name,label\n" + "\n".join(f"id{index},{index % 2}" for index in range(40)))
    with pytest.raises(InputError, match=r"got 40 different values in 40 rows. Remove the column, or encode it"):
        read_user_data(str(tmp_path / "b.csv"))
    (tmp_path / "c.csv").write_text("color,label\n" + "\n".join(f"c{index % 30},{index % 2}" for index in range(90)))
    assert read_user_data(str(tmp_path / "c.csv"))[0].shape == (90, 30)
