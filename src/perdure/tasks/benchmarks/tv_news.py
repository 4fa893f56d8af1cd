"""TV-news: commercials in news broadcasts, the table of the attribution-bias study."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError, error_message
from perdure.tasks.benchmark import Source, examples_in_memory, keep_random_state, stratified_source_rows
from perdure.tasks.files.archives import open_files
from perdure.tasks.files.download import Remote, fetch
from perdure.tasks.registry import Description, register_benchmark
from perdure.tasks.sequence import split_by_class, split_by_group

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from perdure.tasks.benchmark import Benchmark
    from perdure.tasks.files.archives import Files
    from perdure.tasks.sequence import Plan

ARCHIVE = Remote(
    path="TV_News_Channel_Commercial_Detection_Dataset.zip",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/00326/"
    "TV_News_Channel_Commercial_Detection_Dataset.zip",
    digest=None,
    size=64000000,
)
CHANNELS = ("BBC", "CNN", "CNNIBN", "NDTV", "TIMESNOW")
# Ten of the 4125 dimensions, as chosen by the authors of the bias study: means only, no histograms, no bags of audio words.
FEATURES = {
    1: "shot length",
    2: "motion",
    4: "frame difference",
    6: "short time energy",
    8: "zero crossing rate",
    10: "spectral centroid",
    12: "spectral roll-off",
    14: "spectral flux",
    16: "fundamental frequency",
    4124: "edge change ratio",
}
_TEST_SHARE = 0.2


def split_tv_news(source: Source, plan: Plan) -> Benchmark:
    """Divide by channel in the domain scenario, otherwise by class."""
    return (split_by_group if plan.scenario == "domain" else split_by_class)(source, plan)


@register_benchmark(
    Description(
        name="tv-news",
        title="commercials in TV news",
        classes=2,
        tasks=1,
        scenario="domain",
        input_shape=(len(FEATURES),),
        source=ARCHIVE.url,
        licence="CC BY 4.0",
        citation="Vyas, Kannao, Bhargava & Guha 2014, Commercial block detection in broadcast news videos",
        download=ARCHIVE.size,
    ),
    split=split_tv_news,
)
def read_tv_news(folder: Path, progress: bool) -> Source:
    """Read the unpacked files of the five channels or the zip file; download the zip file if neither is there."""
    for unpacked in (folder / ARCHIVE.path.removesuffix(".zip"), folder):
        if (unpacked / f"{CHANNELS[0]}.txt").is_file():
            return tv_news_source(open_files(unpacked))
    return tv_news_source(open_files(fetch(ARCHIVE, folder, progress)))


def tv_news_source(files: Files) -> Source:
    """Return shots of news broadcasts: commercial or not, ten audio-visual features, the channel as domain.

    There is no official split: a fifth of each class of each channel, drawn from a fixed seed, is the test set. Neighboring
    shots are similar, so this test set is easy, as in the studies that use these data.
    """
    parts = []
    for number, channel in enumerate(CHANNELS):
        name = files.find(f"{channel}.txt")
        if name is None:
            raise InputError(
                f"{files.path}: no {channel}.txt in it. Expected one file for each of {', '.join(CHANNELS)}."
            )
        x, y = _read_libsvm(f"{files.path}: {name}", files.read(name))
        parts.append((x, y, np.full(len(y), number)))
    x, y, group = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    train, test = stratified_source_rows(2 * group + y, _TEST_SHARE, np.random.default_rng(0))
    return Source(
        train=examples_in_memory(x[train], y[train], group[train]),
        test=examples_in_memory(x[test], y[test], group[test]),
        class_names=("news", "commercial"),
        group_names=CHANNELS,
        provenance={"files": [files.path.name], "features": list(FEATURES.values())},
    )


def _read_libsvm(file: str, content: bytes) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read the selected dimensions of ``label index:value ...`` lines; a dimension that a line leaves out is 0."""
    with keep_random_state():
        from sklearn.datasets import load_svmlight_file  # noqa: PLC0415  (takes two seconds)

    try:
        sparse, labels = load_svmlight_file(
            io.BytesIO(content), n_features=max(FEATURES) + 1, dtype=np.float32, zero_based=False
        )
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{file}: not in libsvm format, expected lines 'label index:value ...' ({error_message(error)})."
        ) from error
    if set(labels.tolist()) != {-1, 1}:
        raise InputError(f"{file}: expected the labels 1 (commercial) and -1 (news), got {np.unique(labels)[:10]}.")
    if not np.isfinite(sparse.data).all():
        raise InputError(f"{file}: expected finite numbers, got NaN or infinity.")
    x = sparse.tocsc()[:, [index - 1 for index in FEATURES]].toarray()
    return x, (labels > 0).astype(np.int64)
