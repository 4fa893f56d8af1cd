"""The benchmarks known by name: what they are, where they come from, how they are read and cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.base.errors import InputError, suggest
from perdure.tasks.benchmark import Benchmark, Scenario
from perdure.tasks.benchmarks import tiny_imagenet, voc
from perdure.tasks.benchmarks.cifar import CIFAR10, CIFAR100, read_cifar10, read_cifar100
from perdure.tasks.benchmarks.digits import read_digits
from perdure.tasks.benchmarks.mnist import FASHION_MNIST, MNIST, read_fashion_mnist, read_mnist
from perdure.tasks.own_data import tables
from perdure.tasks.sequence import Plan, permuted, rotated, split_by_class, split_by_group
from perdure.tasks.source import Source

Reader = Callable[[Path, bool], Source]
Cutter = Callable[[Source, Plan], Benchmark]


@dataclass(frozen=True)
class Description:
    """What a user wants to know of a benchmark before running it; ``download`` is in bytes, 0 for none."""

    name: str
    classes: int
    tasks: int
    scenario: Scenario
    input_shape: tuple[int, ...]
    source: str
    licence: str
    citation: str
    download: int


@dataclass(frozen=True)
class Entry:
    """A benchmark's description, the reader of its files and the way its data become tasks."""

    about: Description
    read: Reader
    cut: Cutter = split_by_class


def by_class_or_channel(source: Source, plan: Plan) -> Benchmark:
    """Cut TV-news by channel in the domain scenario, by class otherwise."""
    return (split_by_group if plan.scenario == "domain" else split_by_class)(source, plan)


_DIGITS = Description(
    name="split-digits",
    classes=10,
    tasks=5,
    scenario="class",
    input_shape=(1, 8, 8),
    source="embedded (scikit-learn)",
    licence="CC BY 4.0",
    citation="Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits (UCI)",
    download=0,
)
_MNIST = Description(
    name="split-mnist",
    classes=10,
    tasks=5,
    scenario="class",
    input_shape=(1, 28, 28),
    source=MNIST.remotes[0].url.rsplit("/", 1)[0],
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio & Haffner 1998, Gradient-based learning applied to document recognition",
    download=sum(remote.size for remote in MNIST.remotes),
)
_FASHION = replace(
    _MNIST,
    name="split-fashion-mnist",
    source=FASHION_MNIST.remotes[0].url.rsplit("/", 1)[0],
    licence="MIT",
    citation="Xiao, Rasul & Vollgraf 2017, Fashion-MNIST",
    download=sum(remote.size for remote in FASHION_MNIST.remotes),
)
_CIFAR10 = Description(
    name="split-cifar10",
    classes=10,
    tasks=5,
    scenario="class",
    input_shape=(3, 32, 32),
    source=CIFAR10.layouts[0].archive.url,
    licence="not stated by its makers",
    citation="Krizhevsky 2009, Learning multiple layers of features from tiny images",
    download=CIFAR10.layouts[0].archive.size,
)
_CIFAR100 = replace(
    _CIFAR10,
    name="split-cifar100",
    classes=100,
    tasks=10,
    source=CIFAR100.layouts[0].archive.url,
    download=CIFAR100.layouts[0].archive.size,
)
_TINY = Description(
    name="split-tiny-imagenet",
    classes=200,
    tasks=10,
    scenario="class",
    input_shape=(3, 64, 64),
    source=tiny_imagenet.ARCHIVE.url,
    licence="ImageNet terms of access: non-commercial research",
    citation="Le & Yang 2015, Tiny ImageNet visual recognition challenge",
    download=tiny_imagenet.ARCHIVE.size,
)
_VOC = Description(
    name="voc2012",
    classes=20,
    tasks=1,
    scenario="class",
    input_shape=(3, 64, 64),
    source=voc.ARCHIVE.url,
    licence="Flickr terms of use",
    citation="Everingham et al. 2010, The Pascal visual object classes (VOC) challenge",
    download=voc.ARCHIVE.size,
)
_TV_NEWS = Description(
    name="tv-news",
    classes=2,
    tasks=1,
    scenario="domain",
    input_shape=(len(tables.TV_FEATURES),),
    source=tables.TV_NEWS.url,
    licence="CC BY 4.0",
    citation="Vyas, Kannao, Bhargava & Guha 2014, Commercial block detection in broadcast news videos",
    download=tables.TV_NEWS.size,
)

_ENTRIES = (
    Entry(_DIGITS, read_digits),
    Entry(_MNIST, read_mnist),
    Entry(_FASHION, read_fashion_mnist),
    Entry(_CIFAR10, read_cifar10),
    Entry(_CIFAR100, read_cifar100),
    Entry(replace(_CIFAR100, name="split-cifar100-5x20", tasks=5), read_cifar100),
    Entry(_TINY, tiny_imagenet.read_tiny_imagenet),
    Entry(replace(_MNIST, name="permuted-mnist", tasks=10, scenario="domain"), read_mnist, permuted),
    Entry(replace(_MNIST, name="rotated-mnist", tasks=10, scenario="domain"), read_mnist, rotated),
    Entry(_VOC, voc.read_voc_64),
    Entry(replace(_VOC, name="voc2012-224", input_shape=(3, 224, 224)), voc.read_voc_224),
    Entry(_TV_NEWS, tables.read_tv_news, by_class_or_channel),
)


def names() -> list[str]:
    """Return the names of the registered benchmarks."""
    return [entry.about.name for entry in _ENTRIES]


def find(name: str) -> Entry:
    """Return a registered benchmark."""
    for entry in _ENTRIES:
        if entry.about.name == name:
            return entry
    raise InputError(f"benchmark {name!r} is unknown: {suggest(name, names())}")


def describe(name: str) -> Description:
    """Return what is known of a registered benchmark without reading any data."""
    return find(name).about
