"""Pictures of attributions: signed heat maps over the images they explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from perdure.base.errors import InputError

FloatArray = NDArray[np.float64]
SIGNED = "RdBu_r"  # red adds to the output, blue takes away; told apart by colour-blind readers too
CLIPPED = 0.995  # of the magnitudes lie within the colour scale; a few single pixels would make all others pale
SHADE = 0.2  # by which the image's black darkens a map; its white leaves the colours of the scale


def attribution_map(image: Any, attributions: Any, *, limit: float | None = None, title: str = "") -> Figure:
    """One signed map over its image; ``limit`` is the end of the colour scale, by default it holds 99.5 % of the magnitudes."""
    return attribution_panels([image], {title: [attributions]}, limits={title: limit} if limit is not None else None)


def attribution_panels(
    images: Sequence[Any],
    maps: Mapping[str, Sequence[Any]],
    *,
    labels: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
) -> Figure:
    """One row for each image, one column for each method, as in Figure 1 of the bias paper.

    ``images``: (height, width) or (channels, height, width) each; ``maps``: for each method one (height, width) map an
    image. All maps of one method share one signed colour scale, which ``limits`` can fix, so that maps of one column
    compare; methods have units of their own.
    """
    pictures = [_grey(image) for image in images]
    values = {
        name: [_map(one, picture) for one, picture in zip(own, pictures, strict=True)] for name, own in maps.items()
    }
    rows, columns = len(pictures), len(values) + 1
    figure = Figure(figsize=(1.5 * columns + 0.3, 1.55 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for row, image in enumerate(images):
        show_image(panels[row, 0], image, labels[row] if row < len(labels) else "")
    for column, (name, own) in enumerate(values.items(), start=1):
        limit = (limits or {}).get(name) or float(np.quantile(np.abs(own), CLIPPED)) or 1.0
        for row, one in enumerate(own):
            shown = overlay(panels[row, column], pictures[row], one, limit)
        panels[0, column].set_title(name.replace("_", " "), fontsize=8)
        bar = figure.colorbar(
            shown,
            ax=panels[:, column],
            location="bottom",
            shrink=0.9,
            pad=0.02,
            ticks=[-limit, 0, limit],
            extend="both",
        )
        bar.ax.set_xticklabels([f"{-limit:.2g}", "0", f"{limit:.2g}"], fontsize=6)
    panels[0, 0].set_title("image", fontsize=8)
    if values:  # an invisible bar keeps the images level with the maps
        figure.colorbar(shown, ax=panels[:, 0], location="bottom", shrink=0.9, pad=0.02).ax.set_visible(False)
    return figure


def _plain(image: Any) -> FloatArray:
    array: FloatArray = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image, dtype=np.float64)
    return array


def _grey(image: Any) -> FloatArray:
    """Return the image in grey, 0 to 1."""
    array = _plain(image)
    if array.ndim not in (2, 3):
        raise InputError(f"image: found shape {array.shape}, expected (height, width) or (channels, height, width)")
    return _scaled(array.mean(axis=0) if array.ndim == 3 else array)


def _scaled(array: FloatArray) -> FloatArray:
    low, high = array.min(), array.max()
    scaled: FloatArray = (array - low) / (high - low if high > low else 1.0)
    return scaled


def _map(values: Any, picture: FloatArray) -> FloatArray:
    array = _plain(values)
    if array.shape != picture.shape:
        raise InputError(
            f"map: found shape {array.shape} for an image of {picture.shape}; make it with reduce='pixels'"
        )
    return array


def show_image(panel: Any, image: Any, label: str) -> None:
    """Draw an image, in grey or colour, with a word beside it."""
    array = _scaled(_plain(image))
    if array.ndim == 3 and len(array) == 3:
        panel.imshow(array.transpose(1, 2, 0), interpolation="nearest")
    else:
        panel.imshow(array.mean(axis=0) if array.ndim == 3 else array, cmap="gray", interpolation="nearest")
    panel.set_ylabel(label, fontsize=7)
    panel.set_xticks([])
    panel.set_yticks([])


def overlay(panel: Any, picture: FloatArray, values: FloatArray, limit: float) -> Any:
    """Draw the map in its colours and the image (0 to 1) as a faint shadow on it: hues stay those of the scale."""
    shown = panel.imshow(values, cmap=SIGNED, vmin=-limit, vmax=limit, interpolation="nearest")
    panel.imshow(np.zeros_like(picture), cmap="gray", alpha=SHADE * (1 - picture), interpolation="nearest")
    panel.set_xticks([])
    panel.set_yticks([])
    return shown
