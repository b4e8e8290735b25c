"""The smaller tables of the results page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keyhole_benchmarks.ill_posed import halve
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import spread, table
from keyhole_benchmarks.names import DATA, METHODS, measure
from keyhole_benchmarks.published import CLASSIFICATION
from keyhole_benchmarks.published import METHODS as PAPER

__all__ = ["cgan", "l1", "steps", "table2", "weights"]


def table2(lines: Lines) -> Iterator[str]:
    """Write the classification errors beside the paper's: least and mean of five trainings, over all masks.

    Parameters
    ----------
    lines
        Records of Table 2.

    Yields
    ------
    str
        Lines of Markdown.
    """
    header = ["method", "masks", "published least / mean, %", "least, %", "mean, %", "seconds"]
    for data in lines.each("data"):
        for k in sorted(lines.where(data=data).each("k")):
            here = lines.where(data=data, k=k)
            yield from ("", f"### {DATA.get(data, data)}, K = {k}", "")
            yield from table(header, [_classified(here.where(method=method)) for method in here.each("method")])


def _classified(lines: Lines) -> list[str]:
    """One method: the least error of all trainings, and the mean of each mask's with its range."""
    one = lines.records[0]
    method, k = one["method"], one["k"]
    known = CLASSIFICATION[k][PAPER.index(method)] if one["published"] is not None else None
    return [
        METHODS[method],
        str(len(lines)),
        "" if known is None else f"{known[0]:.2f} / {known[1]:.2f}",
        f"{min(lines.metric('least_error', 100)):.2f}",
        spread(lines.metric("mean_error", 100), ".2f"),
        f"{max(one['seconds'] for one in lines):.0f}",
    ]


def weights(lines: Lines) -> Iterator[str]:
    """Write the number of sites and the error for each weight of the penalty.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    names = ("data", "distribution", "polarised", "weight", "expected L0", "count", "K", "error", "concentration")
    header = [*names, "interior modes"]
    rows = [
        [
            DATA.get(one["data"], one["data"]),
            METHODS.get(one["method"], one["method"]),
            "yes" if one["settings"]["selector"].get("polarise", True) else "no",
            f"{one['settings']['selector']['l0_weight']:g}",
            f"{one['notes']['expected_l0']:.0f}",
            f"{one['notes']['count']:.1f}",
            f"{one['k_distinct']} ({one['reconstructor'].split()[-1]})",
            _error(one),
            f"{one['notes']['concentration']:.2f}",
            f"{one['notes']['interior_modes']:.2f}",
        ]
        for one in lines
    ]
    yield from table(header, rows)


def cgan(lines: Lines) -> Iterator[str]:
    """Write error and sharpness of both objectives.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    header = ["data", "K", "objective", "seed", "error", "sharpness", "concentration", "seconds"]
    rows = [
        [
            DATA.get(one["data"], one["data"]),
            str(one["k"]),
            "GAN + L1" if one["method"] == "cgan" else "squared error",
            str(one["seed"]),
            _error(one),
            f"{one['metrics']['sharpness']:.2f}",
            f"{one['notes']['concentration']:.2f}",
            f"{one['seconds']:.0f}",
        ]
        for one in lines
    ]
    yield from table(header, rows)


def _error(one: Mapping[str, Any]) -> str:
    metric, factor, words = measure(one["data"])
    return f"{factor * one['metrics'][metric]:.3f} ({words})"


def steps(lines: Lines) -> Iterator[str]:
    """Write the mean validation error by learning rate, a row for each method, the least in bold.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    grid = sorted({_step(one) for one in lines})
    rows = []
    for data, k, method in sorted({(one["data"], one["k"], _distribution(one)) for one in lines}):
        here = [one for one in lines.where(data=data, k=k) if _distribution(one) == method]
        errors = {step: [one["metrics"]["validation_mse"] for one in here if _step(one) == step] for step in grid}
        rows.append([DATA.get(data, data), str(k), method, *_means(errors)])
    yield from table(["data", "K", "method", *(f"{step:g}" for step in grid)], rows)


def _means(errors: Mapping[float, Sequence[float]]) -> list[str]:
    """Give the mean of each step's errors, with their number where there are several."""
    means = {step: sum(found) / len(found) for step, found in errors.items() if found}
    most = max(map(len, errors.values()))
    least = min(mean for step, mean in means.items() if len(errors[step]) == most)
    texts = {step: f"{mean:.4f}" for step, mean in means.items()}
    texts = {step: f"**{text}**" if means[step] == least else text for step, text in texts.items()}
    texts = {step: text + (f" ({len(errors[step])})" if len(errors[step]) > 1 else "") for step, text in texts.items()}
    return [texts.get(step, "") for step in errors]


def _distribution(one: Mapping[str, Any]) -> str:
    share = one["settings"]["selector"].get("latent_learning_rate", 1)
    return METHODS[one["method"]] + ("" if share == 1 else f", W at {share:g} of it")


def _step(one: Mapping[str, Any]) -> float:
    selector = one["settings"]["selector"]
    return float(selector["selector_learning_rate"] if one["method"] == "cae" else selector["mask_learning_rate"])


def l1() -> Iterator[str]:
    """Write the halving of masks, computed afresh: it needs no data.

    Yields
    ------
    str
        Lines of Markdown.
    """
    rows = [[f"{row.times}", f"{row.error:.5f}", f"{row.l1:.5f}", f"{row.shown:.5f}"] for row in halve(4)]
    yield from table(["halved", "error", "l1 a site", "open sites"], rows)
