"""The readers that are fuzzed: how to make a few valid files, and the function that reads a path."""

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from perdure.tasks.files.archives import Files
from tests.fuzz import importers
from tests.fuzz.importers import files, import_as
from tests.fuzz.mutations import Pack, mutate, mutate_members

DATA = Path(__file__).parents[1] / "data"
MARKER = "code-was-executed"


@dataclass(frozen=True)
class Reader:
    """A reader of files.

    ``seeds`` returns valid files. ``file`` is the name of the mutated file inside a folder, which ``prepare`` fills with the
    files next to it. ``members`` returns the contents of archives instead of ``seeds``; ``pack`` makes an archive of them.
    ``hostile`` returns files that must be refused, which are mutated as well.
    """

    name: str
    file: str
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]] = list
    is_text: bool = True
    prepare: Callable[[Path], None] = lambda _: None
    members: Callable[[], list[dict[str, bytes]]] = list
    hostile: Callable[[], list[bytes]] = list
    pack: Pack | None = None
    _cache: dict[str, Any] = field(default_factory=dict, compare=False)

    def valid_files(self) -> list[bytes]:
        """Return the valid files from which mutated files are made."""
        return self.seeds() if self.pack is None else [self.pack(members) for members in self.members()]

    def mutated(self, seed: int, index: int) -> bytes:
        """Return a mutated file; it depends on the name of the reader, the seed and the index only."""
        rng = Random(f"{self.name}/{seed}/{index}")
        if "seeds" not in self._cache:
            self._cache["seeds"] = self.seeds() + self.hostile() if self.pack is None else self.members()
        if self.pack is None:
            return mutate(rng, self._cache["seeds"], self.is_text)
        return mutate_members(rng, self._cache["seeds"], self.pack, self.is_text)


def lines(*rows: str) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def to_json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()


class Attack:
    """A pickle that runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"touch {MARKER}",)


# Tables and JSON


def read_json_file(path: Path) -> object:
    from perdure.base.files import read_json

    return read_json(path)


def read_csv_cells(path: Path) -> object:
    from perdure.base.files import read_csv_file

    return read_csv_file(path)


def read_matrix(path: Path) -> object:
    from perdure.importers import read_accuracy_matrices

    return read_accuracy_matrices(path)


def read_costs(path: Path) -> object:
    from perdure.importers import read_matrix_costs

    return read_matrix_costs(path)


def read_long_curves(path: Path) -> object:
    from perdure.importers.curves import read_curves

    return read_curves(path)


def read_wide_curves(path: Path) -> object:
    from perdure.importers.curves import read_curves

    return read_curves(path, curriculum=(0, 1, 0))


def read_l2logger_run(path: Path) -> object:
    from perdure.importers.curves import read_curves

    return read_curves(next(parent for parent in path.parents if parent.name == "run"))


def read_rating_table(path: Path) -> object:
    from perdure.audits.bias.ratings import read_ratings

    return read_ratings(path)


def read_user_table(path: Path) -> object:
    from perdure.tasks.user_data.tables import table_source

    return table_source(path)


L2_INFO = to_json({"metrics_columns": ["reward"], "log_format_version": "1.1"})
L2_LOG = lines("block_num\ttask_name\treward\texp_status", "0\tpong\t1.5\tcomplete", "0\tdigits\t-2\tcomplete")


def prepare_l2logger(folder: Path) -> None:
    (folder / "run" / "logger_info.json").parent.mkdir(parents=True, exist_ok=True)
    (folder / "run" / "logger_info.json").write_bytes(L2_INFO)
    for block in ("0-test", "1-train", "2-test"):
        log = folder / "run" / "worker" / block / "data-log.tsv"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(L2_LOG)


MATRIX_CSVS = [
    lines("after_task,task_1,task_2", "0,0.1,0.1", "1,0.9,0.2", "2,0.8,0.9"),
    lines("0.9,0.1", "0.8,0.7"),
    lines("learner,run,after,trained,task,accuracy", "a,1,1,1,1,0.9", "a,1,2,2,1,0.5", "a,1,2,2,2,0.7", "b,2,1,1,1,1"),
]
MATRIX_JSONS = [
    to_json([[0.9, None], [0.8, 0.7]]),
    to_json([[[0.9, 0.1], [0.8, 0.7]], [[0.5, 0.1], [0.4, 0.7]]]),
    to_json(
        {
            "accuracy": [[0.9, 0.1], [0.8, 0.7]],
            "initial": [0.1, 0.2],
            "curriculum": [1, 2],
            "cost": {"parameters": [10, 20], "memory_bits": [0, 8]},
            "lifetime_bits": 1000,
            "learner": "mine",
            "run": "r1",
        }
    ),
    to_json({"runs": [{"accuracy": [[1]]}, {"accuracy": [[0.5]], "run": 2}]}),
]
LONG_CURVES = [
    lines(
        "algorithm,step,trained,evaluated,performance",
        *("a,0,,1,0.1", "a,0,,2,0.1", "a,1,1,1,0.9", "a,1.5,2,1,0.6", "a,2,2,1,0.5", "a,2,2,2,0.8", "b,1,1,1,0.4"),
    ),
    lines("algorithm;step;trained;evaluated;performance", "x;1;pong;pong;0,5", "x;2;chess;pong;0,25"),
]


# Records and results


def record_manifest() -> bytes:
    value = json.loads((DATA / "record-0.1" / "record.json").read_text())
    value["test_examples"] = [100] * len(value["tasks"])
    return to_json(value)


EVALUATIONS = lines("during,trained,batches,task,accuracy", "1,1,10,1,0.5", "1,1,20,2,0.25")


def prepare_record(folder: Path) -> None:
    record = folder / "record"
    record.mkdir(parents=True, exist_ok=True)
    (record / "record.json").write_bytes(record_manifest())
    for name in ("accuracy.csv", "cost.csv"):
        (record / name).write_bytes((DATA / "record-0.1" / name).read_bytes())
    (record / "evaluations.csv").write_bytes(EVALUATIONS)


def read_record(path: Path) -> object:
    from perdure.record import Record

    return Record.open(path.parent).measurements


def read_checkpoint(path: Path) -> object:
    from perdure.record.reader import load_tensors

    return load_tensors(path)


def read_state(path: Path) -> object:
    from perdure.record.state import load_state

    return load_state(path)


def read_reference_file(path: Path) -> object:
    from perdure.record.references import read_references

    return read_references(path.parent)


REFERENCES = to_json(
    {
        "schema": 1,
        "network": {"target": "../own.py:make", "sha256": "0" * 64, "fingerprint": None},
        "data": {"target": "tests.npz", "sha256": "1" * 64, "fingerprint": "2" * 64},
    }
)


def read_test_data(path: Path) -> object:
    from perdure.runs import UserData
    from perdure.runs.data_sources import read_data_file

    return UserData.checked(read_data_file(path))


def torch_data_files() -> list[bytes]:
    import torch

    x, y, task = torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2, torch.tensor([1, 1, 1, 2, 2, 2])
    contents: list[bytes] = []
    for value in ((x, y), {"x": x, "y": y, "task": task}):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        contents.append(buffer.getvalue())
    return contents


def user_data_members() -> list[dict[str, bytes]]:
    arrays = {"x": np.arange(12.0).reshape(6, 2), "y": np.arange(6) % 2, "task": np.array([1, 1, 1, 2, 2, 2])}
    members = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        members[f"{name}.npy"] = buffer.getvalue()
    return [members]


def read_weights(path: Path) -> object:
    from perdure.runs.loaded_run import read_run_weights

    return read_run_weights(path)


def state_files() -> list[bytes]:
    import tempfile

    import torch

    from perdure.record.state import save_state

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "state")
        save_state(file, {"epoch": 3, "net": {"w": torch.ones(2, 3)}, "pairs": {1: torch.zeros(2, dtype=torch.int64)}})
        return [file.read_bytes()]


def hostile_states() -> list[bytes]:
    import torch
    from safetensors.torch import save

    trees = ("[" * 100_000, "[" + "7" * 5000 + "]", '{"@tensor": ["w"]}', '{"@pairs": [[[1], 2]]}', '{"@pairs": 3}')
    return [save({"w": torch.ones(2)}, metadata={"tree": tree}) for tree in trees]


def checkpoint_files() -> list[bytes]:
    import torch
    from safetensors.torch import save

    return [save({"w": torch.ones(2, 3), "n": torch.tensor(3), "h": torch.ones(2, dtype=torch.float16)})]


def torch_files() -> list[bytes]:
    import torch

    files = []
    for legacy in (False, True):
        buffer = io.BytesIO()
        state = {"w": torch.ones(2, 3), "b": torch.zeros(2, dtype=torch.int64)}
        torch.save({"state_dict": state}, buffer, _use_new_zipfile_serialization=not legacy)
        files.append(buffer.getvalue())
    return files


def torch_members() -> list[dict[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(torch_files()[0])) as archive:
        return [{name: archive.read(name) for name in archive.namelist()}]


def read_audit(path: Path) -> object:
    from perdure.audits import Audit

    return Audit.load(path)


def audit_files() -> list[bytes]:
    value = json.loads((DATA / "audit-0.1.json").read_text())
    empty = {**value, "learners": [], "provenance": [], "latent": [], "stability": [], "differences": [], "trust": []}
    learners = {
        "learners": value["learners"][:1],
        "provenance": value["provenance"][:1],
        "differences": value["differences"],
    }
    return [to_json({**empty, **part}) for part in (learners, {"stability": value["stability"][:1]})]


def read_policy_file(path: Path) -> object:
    from perdure.policies import read_policy

    return read_policy(path)


def policy_files() -> list[bytes]:
    return [
        lines(
            *("schema = 1", "false_alarm_rate = 0.05", "[[rule]]", 'metric = "average_accuracy"', "threshold = 0.9"),
            *("[[rule]]", 'metric = "accuracy"', 'per = "class"', 'classes = ["cat", 3]', "threshold = 0.8"),
            *('severity = "warning"', 'name = "every class"'),
        ),
        lines(
            'rule = [{metric = "forgetting", greater_is_better = false, min_absolute_change = -0.02, threshold = 0.1}]'
        ),
        lines("[[rule]]", 'metric = "reasons"', "threshold = 5e-1 # of the baseline"),
        lines("[[rule]]", 'metric = "accuracy"', "threshold = 0.5", 'per = "task"', "tasks = [", '  "a",', "]"),
    ]


def hostile_policies() -> list[bytes]:
    return [
        b"x = " + b"[" * 5000,
        b"a." * 4000 + b"a = 1",
        b"[[rule]]\n" * 3000,
        b'"\\u0007" = nan',
        b"rule = " + b"9" * 6000,
    ]


def read_check_result(path: Path) -> object:
    from perdure.policies import CheckResult

    return CheckResult.load(path).to_json()


def check_result_files() -> list[bytes]:
    from perdure.metrics import binomial_interval
    from perdure.policies import CheckResult, Estimate, Question, Rule, decide

    rule = Rule("accuracy", threshold=0.9, per="class", classes=("cat", 3), line=4)
    questions = [
        Question(
            rule, "threshold", "class cat", lambda level: Estimate(binomial_interval(9, 10, level), "examples", "")
        ),
        Question(Rule("reasons", threshold=0.5), "threshold", reason="no baseline was given"),
    ]
    decisions = tuple(decide(question, 0.975) for question in questions)
    return [to_json(CheckResult("run", "policy.toml", decisions, 0.05, 0.975, notes=("a note",)).to_json())]


def read_bias(path: Path) -> object:
    from perdure.audits.bias.results import BiasResult

    return BiasResult.load(path)


def read_findings_file(path: Path) -> object:
    from perdure.audits.results import read_findings

    return read_findings(str(path.parents[1]), "naive", "split-digits", 0)


def bias_files() -> list[bytes]:
    value = json.loads((DATA / "trust-0.1" / "bias.json").read_text())
    for entry in value["explainers"]:
        if "per_example" in entry:
            entry["per_example"] = entry["per_example"][:1]
    return [to_json({**value, "explainers": value["explainers"][:2]})]


UNIT_STATUS = {
    "name": "train-1a2b",
    "label": "ewc seed 0",
    "state": "running",
    "host": "node1",
    "process": 71,
    "started": 1.5,
    "seconds": 2.5,
    "attempts": 1,
    "done": 3,
    "total": 9,
    "detail": "task 2/5",
    "error": "",
}
STUDY_PLAN = {
    "command": "perdure run ewc",
    "created": 1.5,
    "units": [{"name": "train-1a2b", "label": "ewc seed 0"}, {"name": "train-3c4d", "label": "ewc seed 1"}],
}


def read_unit_status(path: Path) -> object:
    from perdure.engine.status import read_status_file

    return read_status_file(path)


def read_study_plan(path: Path) -> object:
    from perdure.engine.status import read_plan_file

    return read_plan_file(path)


SHAPC_STEPS = {0: (1, 2), 1: (2,)}


def read_shapc_values(path: Path) -> object:
    from perdure.audits.shapc.values import ShapcSettings, ShapcValues

    return ShapcValues.open(path.parent, ShapcSettings(untrained=0), SHAPC_STEPS)


def shapc_files() -> list[bytes]:
    from perdure.audits.shapc.values import _COLUMNS, ShapcSettings, shapc_value_names

    names = shapc_value_names(ShapcSettings(untrained=0))
    cells = ",".join(["0.5"] * len(names))
    rows = [f"{pair},{rank},{rank + 4},1,1,2,{cells}" for rank in (1, 2) for pair in ("1,2", "1,3", "2,3")]
    return [lines(",".join((*_COLUMNS, *names)), *rows)]


# Arrays, archives and images


def read_npz_data(path: Path) -> object:
    from perdure.tasks.user_data.arrays import npz_source

    return npz_source(path)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def npz_members() -> list[dict[str, bytes]]:
    x, y = np.zeros((4, 5, 5), np.uint8), np.array([0, 1, 0, 1])
    table = np.linspace(0, 1, 8, dtype=np.float32).reshape(4, 2)
    words = np.array(["cat", "dog", "cat", "dog"])
    variants: list[tuple[Any, Any]] = [(x, y), (table, words), (table, y.astype(float))]
    return [
        {
            f"{name}.npy": npy(array)
            for name, array in zip(("x_train", "y_train", "x_test", "y_test"), (a, b, a, b), strict=True)
        }
        for a, b in variants
    ]


def pack_zip(members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def pack_tar(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue().rstrip(b"\0") + bytes(1024)


def pack_tar_gz(members: Mapping[str, bytes]) -> bytes:
    return gzip.compress(pack_tar(members), compresslevel=1, mtime=0)


def pack_gz(members: Mapping[str, bytes]) -> bytes:
    (content,) = members.values()
    return gzip.compress(content, compresslevel=1, mtime=0)


def idx_files() -> list[bytes]:
    return [b"\0\0\x08\x03" + np.array([2, 3, 3], ">u4").tobytes() + bytes(18), b"\0\0\x08\x01\0\0\0\x02\x01\x02"]


def read_idx_file(path: Path) -> object:
    from perdure.tasks.files.bounded import read_idx

    return read_idx(path)


def cifar_reader(python: bool) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        from perdure.tasks.benchmarks.cifar import CIFAR10, read_cifar

        archive = replace(CIFAR10.layouts[python].archive, path=path.name, digest=None)
        layout = replace(
            CIFAR10.layouts[python], archive=archive, train=("data_batch_1.bin",) if not python else ("data_batch_1",)
        )
        return read_cifar(replace(CIFAR10, layouts=(layout, layout)), path.parent, progress=False)

    return read


def cifar_members() -> list[dict[str, bytes]]:
    names = ("data_batch_1.bin", "test_batch.bin")
    return [
        {f"cifar-10-batches-bin/{name}": b"".join(bytes([i]) + bytes(3072) for i in range(10)) for name in names}
        | {"batches.meta.txt": b"cat\ndog\n"}
    ]


def cifar_batch(protocol: int) -> bytes:
    return pickle.dumps(
        {b"data": np.zeros((10, 3072), np.uint8), b"labels": [*range(10)], b"filenames": [b"a.png"]}, protocol
    )


def cifar_python_members() -> list[dict[str, bytes]]:
    meta = pickle.dumps({"label_names": [str(number) for number in range(10)]}, 2)
    return [
        {"py/data_batch_1": cifar_batch(protocol), "py/test_batch": cifar_batch(protocol), "py/batches.meta": meta}
        for protocol in (2, 5)
    ]


def read_pickle_file(path: Path) -> object:
    from perdure.tasks.files.plain_pickle import read_plain_pickle

    return read_plain_pickle(str(path), path.read_bytes())


def pickle_files() -> list[bytes]:
    small = {"a": [1, 2.5, "x", None, (True, -5)], "data": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    nested: list[Any] = []
    for _ in range(2):
        nested = [nested, nested]
    return [
        *(pickle.dumps(small, protocol) for protocol in (0, 1, 2, 4, 5)),
        pickle.dumps({"nested": nested}),
    ]


def hostile_pickles() -> list[bytes]:
    attacks: list[object] = [Attack(), eval]
    return [pickle.dumps({"w": attack}, protocol) for attack in attacks for protocol in (0, 2, 4)]


def picture(kind: str, size: tuple[int, int] = (4, 4), color: bool = True) -> bytes:
    buffer = io.BytesIO()
    pixels = np.arange(size[0] * size[1] * (3 if color else 1), dtype=np.uint8)
    Image.fromarray(pixels.reshape((*size, 3) if color else size)).save(buffer, kind)
    return buffer.getvalue()


def picture_files() -> list[bytes]:
    return [
        *(picture(kind) for kind in ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")),
        picture("PNG", color=False),
    ]


def read_picture(path: Path) -> object:
    from perdure.tasks.files.archives import open_files
    from perdure.tasks.files.images import open_image

    return open_image(open_files(path.parent), path.name, "RGB")


def folder_members() -> list[dict[str, bytes]]:
    return [{f"{part}/{label}/1.png": picture("PNG") for part in ("train", "test") for label in ("a", "b")}]


def all_examples(source: Any) -> object:
    return [split.take(np.arange(len(split.y))) for split in (source.train, source.test)]


def read_image_archive(path: Path) -> object:
    from perdure.tasks.files.archives import open_files
    from perdure.tasks.user_data.image_folders import image_folder_source

    return all_examples(image_folder_source(open_files(path)))


def tiny_members() -> list[dict[str, bytes]]:
    jpeg = picture("JPEG", (64, 64))
    return [
        {
            "t/wnids.txt": b"n1\nn2\n",
            "t/words.txt": b"n1\tcat, kitten\nn2\tdog\n",
            "t/train/n1/images/n1_0.JPEG": jpeg,
            "t/train/n1/n1_boxes.txt": b"n1_0.JPEG\t0\t0\t63\t63\n",
            "t/train/n2/images/n2_0.JPEG": jpeg,
            "t/train/n2/n2_boxes.txt": b"n2_0.JPEG\t0\t10\t63\t63\n",
            "t/val/val_annotations.txt": b"v0.JPEG\tn1\t0\t0\t62\t60\nv1.JPEG\tn2\t0\t0\t9\t9\n",
            "t/val/images/v0.JPEG": jpeg,
            "t/val/images/v1.JPEG": jpeg,
        }
    ]


def read_tiny(path: Path) -> object:
    from perdure.tasks.benchmarks.tiny_imagenet import tiny_imagenet_source
    from perdure.tasks.files.archives import open_files

    return tiny_imagenet_source(open_files(path))


VOC_XML = (
    b"<annotation><object><name>dog</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax>"
    b"<ymax>4</ymax></bndbox></object></annotation>"
)
VOC_ENTITY = b"<!DOCTYPE a [<!ENTITY b 'do'><!ENTITY c '&b;g'>]>" + VOC_XML.replace(b"dog", b"&c;")


def voc_members() -> list[dict[str, bytes]]:
    lists = {f"v/ImageSets/Main/{part}.txt": f"{part}1\n".encode() for part in ("train", "val")}
    images = {f"v/JPEGImages/{part}1.jpg": picture("JPEG") for part in ("train", "val")}
    return [
        lists | images | {f"v/Annotations/{part}1.xml": xml for part in ("train", "val")}
        for xml in (VOC_XML, VOC_ENTITY)
    ]


def read_voc_tar(path: Path) -> object:
    from perdure.tasks.benchmarks.voc import voc_source
    from perdure.tasks.files.archives import open_files

    return all_examples(voc_source(open_files(path), 8))


class OneFile(Files):
    """The same file under every name."""

    def _read(self, name: str) -> bytes:
        return self.path.read_bytes()


def read_tv_news_file(path: Path) -> object:
    from perdure.tasks.benchmarks.tv_news import CHANNELS, tv_news_source

    return tv_news_source(OneFile(path, [f"{channel}.txt" for channel in CHANNELS]))


TV_NEWS = lines(*(f"{sign} 1:{shot} 2:0.5 17:9 4125:0.5" for shot in range(3) for sign in ("1", "-1")))

READERS = (
    Reader("json", "value.json", read_json_file, lambda: MATRIX_JSONS),
    Reader("csv", "table.csv", read_csv_cells, lambda: [*MATRIX_CSVS, *LONG_CURVES]),
    Reader("matrix-csv", "accuracy.csv", read_matrix, lambda: MATRIX_CSVS),
    Reader("matrix-json", "accuracy.json", read_matrix, lambda: MATRIX_JSONS),
    Reader("cost-csv", "cost.csv", read_costs, lambda: [lines("after,parameters,memory_bits", "1,10,0", "2,20,8.5")]),
    Reader("curves-long", "curves.csv", read_long_curves, lambda: LONG_CURVES),
    Reader("curves-wide", "curves.csv", read_wide_curves, lambda: MATRIX_CSVS[:1]),
    Reader("l2logger-info", "run/logger_info.json", read_l2logger_run, lambda: [L2_INFO], prepare=prepare_l2logger),
    Reader(
        "l2logger-log", "run/worker/2-test/data-log.tsv", read_l2logger_run, lambda: [L2_LOG], prepare=prepare_l2logger
    ),
    Reader(
        "ratings",
        "ratings.csv",
        read_rating_table,
        lambda: [lines("explainer,rater,rating,image", "lrp,a,3,1", "ig,a,4,1")],
    ),
    Reader("user-table", "data.csv", read_user_table, lambda: [lines("w,h,c,class", *("1,2,a,x", "3,4,b,y") * 3)]),
    Reader("tv-news", "CNN.txt", read_tv_news_file, lambda: [TV_NEWS]),
    Reader("record-manifest", "record/record.json", read_record, lambda: [record_manifest()], prepare=prepare_record),
    Reader(
        "record-accuracy",
        "record/accuracy.csv",
        read_record,
        lambda: [(DATA / "record-0.1" / "accuracy.csv").read_bytes()],
        prepare=prepare_record,
    ),
    Reader(
        "record-cost",
        "record/cost.csv",
        read_record,
        lambda: [(DATA / "record-0.1" / "cost.csv").read_bytes()],
        prepare=prepare_record,
    ),
    Reader("record-evaluations", "record/evaluations.csv", read_record, lambda: [EVALUATIONS], prepare=prepare_record),
    Reader("audit", "audit.json", read_audit, audit_files),
    Reader("policy", "policy.toml", read_policy_file, policy_files, hostile=hostile_policies),
    Reader("check-result", "check.json", read_check_result, check_result_files),
    Reader("bias", "bias.json", read_bias, bias_files),
    Reader(
        "retraining",
        "trust/retraining.json",
        read_findings_file,
        lambda: [(DATA / "trust-0.1/retraining.json").read_bytes()],
    ),
    Reader(
        "checkpoints",
        "trust/checkpoints.json",
        read_findings_file,
        lambda: [(DATA / "trust-0.1/checkpoints.json").read_bytes()],
    ),
    Reader("shapc-values", "values.csv", read_shapc_values, shapc_files),
    Reader("unit-status", "status.json", read_unit_status, lambda: [to_json(UNIT_STATUS)]),
    Reader("study-plan", "plan.json", read_study_plan, lambda: [to_json(STUDY_PLAN)]),
    Reader("state", "progress.safetensors", read_state, state_files, is_text=False, hostile=hostile_states),
    Reader("checkpoint", "after-01.safetensors", read_checkpoint, checkpoint_files, is_text=False),
    Reader("references", "references.json", read_reference_file, lambda: [REFERENCES]),
    Reader("test-data-torch", "data.pt", read_test_data, torch_data_files, is_text=False, hostile=hostile_pickles),
    Reader("test-data-npz", "data.npz", read_test_data, is_text=False, members=user_data_members, pack=pack_zip),
    Reader(
        "test-data-csv",
        "data.csv",
        read_test_data,
        lambda: [lines("w,h,task,label", *("1,2,1,x", "3,4,1,y", "5,6,2,x", "7,8,2,y"))],
    ),
    Reader("torch", "weights.pt", read_weights, torch_files, is_text=False, hostile=hostile_pickles),
    Reader(
        "torch-members",
        "weights.pt",
        read_weights,
        is_text=False,
        members=torch_members,
        pack=partial(pack_zip, compression=zipfile.ZIP_STORED),
    ),
    Reader("npz", "data.npz", read_npz_data, is_text=False, members=npz_members, pack=pack_zip),
    Reader("idx", "train-labels-idx1-ubyte", read_idx_file, idx_files, is_text=False),
    Reader(
        "idx-gz",
        "train-labels-idx1-ubyte.gz",
        read_idx_file,
        is_text=False,
        members=lambda: [{"idx": content} for content in idx_files()],
        pack=pack_gz,
    ),
    Reader("cifar", "cifar.tar.gz", cifar_reader(python=False), is_text=False, members=cifar_members, pack=pack_tar_gz),
    Reader(
        "cifar-python",
        "cifar.tar",
        cifar_reader(python=True),
        is_text=False,
        members=cifar_python_members,
        pack=pack_tar,
    ),
    Reader("pickle", "batch.pkl", read_pickle_file, pickle_files, is_text=False, hostile=hostile_pickles),
    Reader("image", "image.png", read_picture, picture_files, is_text=False),
    Reader("images-zip", "images.zip", read_image_archive, is_text=False, members=folder_members, pack=pack_zip),
    Reader("images-tar", "images.tar", read_image_archive, is_text=False, members=folder_members, pack=pack_tar),
    Reader("tiny-imagenet", "tiny.zip", read_tiny, members=tiny_members, pack=pack_zip),
    Reader("voc", "voc.tar", read_voc_tar, members=voc_members, pack=pack_tar),
    Reader("python-literals", "logs.pyd", importers.parse_literal, lambda: importers.LITERALS),
    Reader(
        "import-avalanche-csv",
        "eval_results.csv",
        import_as("avalanche-csv"),
        files("avalanche/ewc_seed0/csvlogs/eval_results.csv"),
    ),
    Reader(
        "import-avalanche-metrics",
        "metrics.json",
        import_as("avalanche-metrics"),
        files("avalanche_metrics/ewc_seed0.json"),
    ),
    Reader(
        "import-mammoth",
        "logs.pyd",
        import_as("mammoth"),
        files("mammoth/class-il/seq-mnist/sgd/logs.pyd", "mammoth/eval_epochs.pyd", "mammoth/eval_future.pyd"),
    ),
    Reader(
        "import-pycil",
        "reproduce_1993_resnet32.log",
        import_as("pycil"),
        files("pycil/logs/icarl/cifar100/0/10/reproduce_0_resnet32.log", "pycil/printed_matrix.txt"),
    ),
    Reader(
        "import-facil",
        "acc_tag-2024-05-01-10-30.txt",
        import_as("facil"),
        files("facil/cifar100_ewc_0/results/acc_tag-2024-05-01-10-30.txt"),
    ),
    Reader("import-facil-printed", "stdout.txt", import_as("facil"), files("facil/stdout.txt")),
    Reader(
        "import-ocl-survey",
        "logs_continual.json",
        import_as("ocl-survey"),
        files(*(f"ocl_survey/ewc_split_cifar100_3_2000/0/{name}" for name in ("logs.json", "logs_continual.json"))),
    ),
    Reader("import-capymoa", "er.json", import_as("capymoa"), files("capymoa/er_seed0.json")),
    Reader(
        "import-capymoa-npz",
        "er.npz",
        import_as("capymoa"),
        is_text=False,
        members=importers.npz_members,
        pack=pack_zip,
    ),
    Reader(
        "import-l2logger",
        "run/worker/2-test/data-log.tsv",
        importers.import_l2logger_folder,
        lambda: [L2_LOG],
        prepare=prepare_l2logger,
    ),
    Reader(
        "import-lm-evaluation-harness",
        "results_2024.json",
        import_as("lm-evaluation-harness", curriculum=("boolq",)),
        files("lm_evaluation_harness/lora/out__step1-boolq/results_2024-05-01T10-30-00.000000.json"),
    ),
    Reader("import-peft", "lora.json", import_as("peft"), files("peft/lora--llama-3.2-3B-rank32.json")),
    Reader("import-wandb", "history.csv", import_as("wandb"), files("wandb/ewc_seed0.csv", "wandb/wandb_export.csv")),
    Reader(
        "import-tensorboard",
        "events.out.tfevents.1",
        import_as("tensorboard"),
        files(*(f"tensorboard/{run}/events.out.tfevents.1714550000.host.1.0" for run in ("ewc_seed0", "facil_run"))),
        is_text=False,
    ),
    Reader(
        "import-tensorboard-csv",
        "run-ewc-tag-acc_1.csv",
        import_as("tensorboard-csv", metric="acc_{task}"),
        lambda: [lines("Wall time,Step,Value", "1714550000.0,40,0.9")],
    ),
    Reader("import-table", "ewc_0.csv", importers.import_any, lambda: [*importers.TABLES, *MATRIX_CSVS]),
    Reader("import-table-json", "ewc_0.json", importers.import_any, lambda: MATRIX_JSONS),
    Reader("import-table-npy", "ewc_0.npy", importers.import_any, importers.npy_files, is_text=False),
)


# Readers with a defect, for the test of the runner


def _with_defect(defect: Callable[[], object]) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        return defect() if path.read_bytes() != b"valid" else None

    return read


def _hang() -> None:
    while True:
        pass


def _run_command() -> None:
    import os

    os.system("true")


def _crash() -> None:
    import os

    os._exit(3)


SELF_TESTS = tuple(
    Reader(f"self-test-{name}", "file", _with_defect(defect), lambda: [b"valid"], is_text=False)
    for name, defect in {
        "error": lambda: 1 // 0,
        "hang": _hang,
        "memory": lambda: bytearray(600 * 2**20),
        "command": _run_command,
        "crash": _crash,
    }.items()
)
