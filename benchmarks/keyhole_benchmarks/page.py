"""The results page, made from the records of all benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from keyhole.core.errors import DataError
from keyhole.core.storage import replacing
from keyhole_benchmarks import texts
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.sections import (
    ablation,
    answers,
    by_time,
    cgan,
    examples,
    floor,
    gradients,
    graphs,
    l1,
    learned,
    networks,
    quality,
    short_table,
    speed,
    steps,
    table1,
    table2,
    tables,
    weights,
)
from keyhole_benchmarks.table1 import KS
from keyhole_benchmarks.weights import by_resulting_k

__all__ = ["SWEPT", "write_page"]

# Settings of the selector that a benchmark varies, by benchmark.
SWEPT = {
    "table1": ("l0_weight",), "table2": (), "weights": ("l0_weight", "polarise"), "cgan": (),
    "steps": ("mask_learning_rate", "latent_learning_rate", "selector_learning_rate"), "quality": (), "ablation": (),
    "networks": (), "learned": (), "gradients": (), "examples": (), "graphs": (), "tables": (), "speed": (),
    "floor": (),
}  # fmt: skip


def write_page(results: Path, out: Path, readme: Path | None) -> list[Path]:
    """Write the results page, its figures and the README's table from the records alone.

    Parameters
    ----------
    results
        Folder of the records.
    out
        The page.
    readme
        README whose table is renewed; None to leave it.

    Returns
    -------
    list of Path
        Files written.
    """
    from keyhole_benchmarks.drawing import draw_chart, draw_features

    found = {bench: Lines(Store(results, bench).lines()).latest(*swept) for bench, swept in SWEPT.items()}
    found["table1"] = by_resulting_k(found["table1"], KS)
    if not any(map(len, found.values())):
        raise DataError(f"{results}: no lines; run keyhole-bench table1 first")
    reading = results.parent / "reading.md"
    written = draw_chart(found["table1"].records, out.parent / "images" / "paper")
    written += draw_features(found["tables"].whatever_protocol(), out.parent / "images" / "tables")
    text = [*_page(found, reading.read_text() if reading.exists() else ""), *_figures(out.parent)]
    _write(out, "\n".join(text) + "\n")
    if readme is not None:
        _renew(readme, short_table(found["quality"]))
    return [out, *written, *([] if readme is None else [readme])]


def _page(found: dict[str, Lines], reading: str) -> Iterator[str]:
    yield texts.HEAD
    yield reading
    yield from _part("What auto reaches", texts.QUALITY, quality, found["quality"])
    if len(found["quality"].each("protocol")) > 1:
        yield from _part("Error against time", texts.BY_TIME, by_time, found["quality"])
    yield from _part("The default beside a floor", texts.FLOOR, floor, found["floor"])
    yield from _section("Ablation of the stages", texts.ABLATION, ablation, found["ablation"])
    yield from _section("Constraints, prediction intervals and failures", texts.NETWORKS, networks, found["networks"])
    yield from _part("Sensors on a water network", texts.GRAPHS, graphs, found["graphs"])
    yield from _part("Features of tables", texts.TABLES, tables, found["tables"])
    yield from _section("Speed", texts.SPEED, speed, found["speed"])
    yield from _part("Learned masks beside local search", texts.LEARNED, learned, found["learned"])
    yield from _section("Answers", texts.ANSWERS, answers, found["table1"])
    yield from _section("Table 1: reconstruction error", texts.TABLE1, table1, found["table1"], texts.TABLE1_OF)
    yield from _section("Learning rates of the mask distributions", texts.STEPS, steps, found["steps"])
    yield from _section("Table 2: classification from the selected pixels", texts.TABLE2, table2, found["table2"])
    yield from _section("The weight of the L0 penalty", texts.WEIGHTS, weights, found["weights"])
    yield from _part("Gradients of mask distributions", texts.GRADIENTS, gradients, found["gradients"])
    yield from _part("Worked examples: a decoder and a loss of one's own", texts.EXAMPLES, examples, found["examples"])
    yield from _section("Conditional GAN", texts.CGAN, cgan, found["cgan"])
    yield from ("## Why not l1", "", texts.L1, "", *l1())


def _figures(docs: Path) -> Iterator[str]:
    """Show the figures that `keyhole-bench figures` drew, if it has."""
    found = [path for name in texts.FIGURES for path in sorted((docs / "images" / "paper").glob(f"{name}.png"))]
    if found:
        yield from ("## Figures", "", texts.DRAWN, "")
    for path in found:
        caption = next(text for name, text in texts.FIGURES.items() if path.match(f"{name}.png"))
        yield from (f"![{caption}]({path.relative_to(docs)})", "", f"*{caption}*", "")


def _section(
    title: str, text: str, render: Callable[[Lines], Iterable[str]], lines: Lines, of: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Give one section for each protocol: their lines are never mixed. ``of`` is the text of a protocol."""
    protocols = lines.each("protocol")
    for protocol in protocols:
        name = title if len(protocols) == 1 else f"{title} (protocol `{protocol}`)"
        yield from _part(name, (of or {}).get(protocol, text), render, lines.where(protocol=protocol))


def _part(title: str, text: str, render: Callable[[Lines], Iterable[str]], lines: Lines) -> Iterator[str]:
    """Give one section; nothing where there are no lines."""
    if len(lines):
        yield from (f"## {title}", "", text, "", *render(lines), "", lines.provenance(), "")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode())


def _renew(readme: Path, table: list[str]) -> None:
    """Replace what stands between the README's markers."""
    before, _, rest = readme.read_text().partition("<!-- results -->")
    _, found, after = rest.partition("<!-- /results -->")
    if not found:
        raise DataError(f"{readme}: no place for the table between <!-- results --> and <!-- /results -->")
    _write(readme, f"{before}<!-- results -->\n" + "\n".join(table).rstrip() + f"\n<!-- /results -->{after}")
