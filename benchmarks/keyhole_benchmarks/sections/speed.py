"""How quick things are, beside what they were to be."""

from __future__ import annotations

from collections.abc import Iterator

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import spread, table
from keyhole_benchmarks.speed import SPEED_TESTS

__all__ = ["speed"]

_FIGURES = {
    "our_error": "our error",
    "their_error": "PySensors' error",
    "their_error_without_prior": "without its prior",
    "peak_of_data": "peak memory, of the data",
    "serial_cpu_seconds": "processor seconds of one process",
    "dask_cpu_seconds": "of scheduler, workers and caller",
    "same_sites": "same sites",
    "dask_worker_gib": "GiB of a worker",
    "model_worker_gib": "of the model",
    "dask_sent_gib": "GiB sent",
    "model_sent_gib": "of the model",
    "passes": "passes",
    "model_passes": "of the model",
    "model_gib": "GiB of the model",
    "our_processor": "processor seconds of each process",
    "their_processor": "of one",
}


def speed(lines: Lines) -> Iterator[str]:
    """Write one row for each timed task.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    rows = []
    for name in (name for name in SPEED_TESTS if len(lines.where(method=name))):
        here, task = lines.where(method=name), SPEED_TESTS[name]
        times = (f"{spread(here.metric(whose), '.2f')}" for whose in ("ours", "theirs"))
        others = [f"{words} {here.metric(figure)[-1]:.3f}" for figure, words in _FIGURES.items() if here.metric(figure)]
        rows.append([task.words, f"{task.goal:g}", spread(here.metric("ratio"), ".2f"), *times, ", ".join(others)])
    yield from table(["task / reference", "goal", "ratio", "seconds", "reference seconds", "other figures"], rows)
