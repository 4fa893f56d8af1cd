"""The readers of other frameworks' files: valid files from tests/data/frameworks, mutated like all others."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data" / "frameworks"


def import_as(name: str, **options: object) -> Callable[[Path], object]:
    """Return a function that reads a file as one format, as if its content had been detected as this format."""

    def read(path: Path) -> object:
        from perdure.base.errors import InputError
        from perdure.importers import IMPORTERS, ReadOptions, Source

        reader = IMPORTERS.get(name)
        source = Source(path)
        if not reader.detects(source):
            raise InputError(f"{path}: not a file of {name}.")
        return [run.measurements for run in reader.read([source], ReadOptions(**options))]  # type: ignore[arg-type]

    return read


def import_any(path: Path) -> object:
    """Read a file in whatever format is detected, and compute which metrics are unavailable."""
    from perdure.importers import read

    return [run.measurements for run in read(path).runs]


def import_l2logger_folder(path: Path) -> object:
    from perdure.importers import read

    folder = next(parent for parent in path.parents if parent.name == "run")
    return [run.measurements for run in read(folder).runs]


def parse_literal(path: Path) -> object:
    from perdure.base.files import read_text
    from perdure.importers.parsers.python_literals import parse_python_value

    return parse_python_value(str(path), read_text(path))


def files(*names: str) -> Callable[[], list[bytes]]:
    return lambda: [(DATA / name).read_bytes() for name in names]


def npy_files() -> list[bytes]:
    import io

    contents = []
    for array in (np.eye(3), np.asfortranarray(np.full((2, 3, 3), 0.5, np.float32)), np.array([[1, 0], [1, 1]])):
        file = io.BytesIO()
        np.save(file, array)
        contents.append(file.getvalue())
    return contents


def npz_members() -> list[dict[str, bytes]]:
    anytime = np.repeat(np.eye(2), 2, axis=0)
    import io

    members = {}
    for name, array in (("accuracy_matrix", np.eye(2)), ("anytime_accuracy_matrix", anytime)):
        file = io.BytesIO()
        np.save(file, array)
        members[f"{name}.npy"] = file.getvalue()
    return [members]


LITERALS = [
    b"{'a': 1, 'b': [1.5, -2e-3, None, True], 'c': np.float64(97.5), 'd': device(type='cuda', index=0), 3: ('x', \"y\")}",
    b"{'f': <function f at 0x7f>, 'n': nan, 's': {1, 2}, 'e': Namespace(a=1, b=[2]), 't': 'it\\'s'}",
]
TABLES = [
    b",cats,dogs\n0,0.9,\n1,0.5,0.8\n",
    b"0.9\n0.5 0.8\n",
    b"t1,t2\n90%,\n50%,80%\n",
    b"after,trained,task,accuracy\n1,cats,cats,.9\n2,dogs,cats,.5\n2,dogs,dogs,.8\n",
    b"after_task;t1;t2;mean\n1;0,9;;0,9\n2;0,5;0,8;0,65\n",
]
