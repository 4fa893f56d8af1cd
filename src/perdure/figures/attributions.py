"""Figures of attributions: signed heat maps over the images they explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.figures.style import Figure

FloatArray = NDArray[np.float64]
SIGNED_COLORMAP = "RdBu_r"  # red increases the output, blue decreases it; distinguishable for color-blind readers
CLIP_QUANTILE = 0.995  # of the magnitudes; without clipping, a few extreme pixels make all others pale
SHADE = 0.2  # opacity of the image's black over a map; white pixels leave the map's color unchanged


def attribution_map_figure(image: Any, attributions: Any, *, limit: float | None = None, title: str = "") -> Figure:
    """One signed map over its image. ``limit``: end of the color scale, by default the 99.5 % quantile of the magnitudes."""
    return attribution_panels([image], {title: [attributions]}, limits={title: limit} if limit is not None else None)


def attribution_panels(
    images: Sequence[Any],
    maps: Mapping[str, Sequence[Any]],
    *,
    labels: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
) -> Figure:
    """One row per image and one column per method, as in Figure 1 of the bias paper.

    ``images``: each (height, width) or (channels, height, width). ``maps``: for each method, one (height, width) map per
    image. All maps of a method share one signed color scale, so that the maps of a column are comparable; ``limits`` sets
    its end. Different methods have different units and are not comparable.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain, figures
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> images = torch.rand(3, 1, 8, 8)
    >>> maps = {}
    >>> for method in ("gradient_x_input", "integrated_gradients"):
    ...     maps[method] = explain.attribute(
    ...         network, images, 0, method, reduce="pixels"
    ...     )
    >>> figure = figures.attribution_panels(images, maps, labels=["a", "b", "c"])
    >>> figures.save(figure, "maps.png").name
    'maps.png'
    """
    gray_images = [_gray(image) for image in images]
    values = {
        method: [_checked_map(map_, image) for map_, image in zip(method_maps, gray_images, strict=True)]
        for method, method_maps in maps.items()
    }
    rows, columns = len(gray_images), len(values) + 1
    figure = Figure(figsize=(1.5 * columns + 0.3, 1.55 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for row, image in enumerate(images):
        show_image(panels[row, 0], image, labels[row] if row < len(labels) else "")
    for column, (method, method_maps) in enumerate(values.items(), start=1):
        limit = (limits or {}).get(method) or float(np.quantile(np.abs(method_maps), CLIP_QUANTILE)) or 1.0
        for row, map_ in enumerate(method_maps):
            shown = overlay(panels[row, column], gray_images[row], map_, limit)
        panels[0, column].set_title(method.replace("_", " "), fontsize=8)
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
    if values:  # an invisible color bar aligns the images with the maps
        figure.colorbar(shown, ax=panels[:, 0], location="bottom", shrink=0.9, pad=0.02).ax.set_visible(False)
    return figure


def _as_array(image: Any) -> FloatArray:
    array: FloatArray = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image, dtype=np.float64)
    return array


def _gray(image: Any) -> FloatArray:
    """Return the image in gray, scaled to [0, 1]."""
    array = _as_array(image)
    if array.ndim not in (2, 3):
        raise InputError(f"image: expected shape (height, width) or (channels, height, width), got {array.shape}")
    return _scaled(array.mean(axis=0) if array.ndim == 3 else array)


def _scaled(array: FloatArray) -> FloatArray:
    low, high = array.min(), array.max()
    scaled: FloatArray = (array - low) / (high - low if high > low else 1.0)
    return scaled


def _checked_map(values: Any, image: FloatArray) -> FloatArray:
    array = _as_array(values)
    if array.shape != image.shape:
        raise InputError(
            f"map: expected the image's shape {image.shape}, got {array.shape}. Compute the map with reduce='pixels'."
        )
    return array


def show_image(panel: Any, image: Any, label: str) -> None:
    """Draw an image, in gray or color, with a label to its left."""
    array = _scaled(_as_array(image))
    if array.ndim == 3 and len(array) == 3:
        panel.imshow(array.transpose(1, 2, 0), interpolation="nearest")
    else:
        panel.imshow(array.mean(axis=0) if array.ndim == 3 else array, cmap="gray", interpolation="nearest")
    panel.set_ylabel(label, fontsize=7)
    panel.set_xticks([])
    panel.set_yticks([])


def overlay(panel: Axes, image: FloatArray, values: FloatArray, limit: float) -> AxesImage:
    """Draw a map in color and the image (gray, 0 to 1) as a faint shadow over it, which leaves the hues unchanged."""
    shown = panel.imshow(values, cmap=SIGNED_COLORMAP, vmin=-limit, vmax=limit, interpolation="nearest")
    panel.imshow(np.zeros_like(image), cmap="gray", alpha=SHADE * (1 - image), interpolation="nearest")
    panel.set_xticks([])
    panel.set_yticks([])
    return shown
