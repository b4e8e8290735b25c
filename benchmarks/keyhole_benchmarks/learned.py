"""Learned masks of exactly K sites beside classical and local search, for the field and for a class, by one refit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

from keyhole.core.run import Run
from keyhole.data import datasets
from keyhole.data.preparation import PreparedSamples, prepare_with
from keyhole.metrics import target_scores
from keyhole.models.predictors import Network, target_of
from keyhole.models.reconstructors import Residual
from keyhole.placement import SELECTORS
from keyhole.workflow.arguments import check_k
from keyhole_benchmarks.data import load
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["FIELDS", "KS", "METHODS", "Method", "jobs"]

KS = {
    "mnist": (20, 30, 50), "celeba": (100,), "isolet": (50,), "coil20": (50,), "mnist classes": (10, 20),
}  # fmt: skip
FIELDS = tuple(name for name in KS if not name.endswith(" classes"))
_CLASSES = " classes"
_REFIT_STEPS = 2000  # of the network, the same for all sites; early stopping may end it before
_SEARCH = {"local_search": True}
# Few masks, each of which observes the whole batch. W learns more slowly than the bias: at equal rates the noise of its
# gradient makes the spread of the logits grow.
_KERNEL = {"decoder": "kernel", "n_masks": 4, "latent_learning_rate": 0.05, "train": {"steps": 800, "ema_decay": 0.0}}


@dataclass(frozen=True)
class Method:
    """A selector of the table.

    Parameters
    ----------
    words
        Its name on the page.
    selector
        Name in `SELECTORS`.
    settings
        Its settings.
    start
        Whether ``warm_start`` names the classical start of the task: QR, or forward selection for a class.
    deterministic
        Whether one run stands for all seeds: only the refit differs.
    tasks
        Tasks that it is for, ``"field"`` and ``"classes"``.
    """

    words: str
    selector: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: bool = False
    deterministic: bool = False
    tasks: tuple[str, ...] = ("field", "classes")

    def settings_for(self, task: str) -> dict[str, Any]:
        """Return the settings for a task."""
        start = {"warm_start": "qr" if task == "field" else "relevance"} if self.start else {}
        return {**self.settings, **start}


METHODS = {
    "qr": Method("QR", "qr", deterministic=True),
    "greedy": Method("greedy", "greedy", deterministic=True),
    "relevance": Method("forward selection", "relevance", deterministic=True, tasks=("classes",)),
    "forest": Method("extra trees, recursive", "forest", tasks=("classes",)),
    "kernel_exchange": Method("exchange with a kernel surrogate", "kernel_exchange", {"n_restarts": 2}),
    "learned": Method("learned masks", "learned"),
    "learned_search": Method("learned masks, local search", "learned", _SEARCH),
    "learned_kernel": Method("learned masks, kernel decoder", "learned", _KERNEL, start=True),
    "learned_kernel_search": Method(
        "learned masks, kernel decoder, local search", "learned", _KERNEL | _SEARCH, start=True
    ),
}


def jobs(
    data: Sequence[str], methods: Sequence[str], ks: Sequence[int], seeds: Sequence[int]
) -> Iterator[Job]:  # fmt: skip
    """Return one job for each data set, K, seed and method.

    Parameters
    ----------
    data
        Names of tasks, keys of `KS`.
    methods
        Names of methods, keys of `METHODS`.
    ks
        Numbers of sites; empty for those of each task.
    seeds
        Seeds of selection and refit.

    Yields
    ------
    Job
        A job with one case.
    """
    for name in data:
        task = "classes" if name.endswith(_CLASSES) else "field"
        for seed, k, method in product(seeds, ks or KS[name], methods):
            one = METHODS[method]
            if task not in one.tasks:
                continue
            settings = {"selector": one.settings_for(task), "refit_steps": _REFIT_STEPS}
            case = Case("learned", name, "2000 steps", method, "network", k, seed, settings)
            yield Job([case], _prepared(name).split.sizes(), "32-true", partial(_work, case, task))


@lru_cache(maxsize=1)
def _prepared(name: str) -> PreparedSamples:
    """The samples, with the labels as their target where a class is predicted."""
    data = load(name.removesuffix(_CLASSES), None).scaled
    if not name.endswith(_CLASSES):
        return data
    samples = data.samples.with_target(datasets.labels(name.removesuffix(_CLASSES)))
    return prepare_with(samples, data.split, data.choosing, data.scaling)


def _work(case: Case, task: str, run: Run) -> Iterator[Outcome]:
    prepared = _prepared(case.data)
    check_k(case.k, prepared.samples)
    train, validation = prepared.train, prepared.validation
    selector = SELECTORS.make(METHODS[case.method].selector, dict(case.settings["selector"]))
    seeded = replace(run, seed=0) if METHODS[case.method].deterministic else run
    found = selector.select(train, case.k, validation=validation if selector.requires_validation else None, run=seeded)
    test = prepared.scaling.apply(prepared.test)
    refit = {"train": {"steps": _REFIT_STEPS}}
    if task == "classes":
        predictor = Network(**refit).fit(train, found.sites, validation=validation, run=run)
        metrics = target_scores(target_of(test), predictor.predict(test.readings(found.sites)))
    else:
        fitted = Residual(inner="dense", **refit).fit(train, found.sites, validation=validation, run=run)
        metrics = load(case.data, None).score(prepared, fitted.reconstruct(test.readings(found.sites)))
    notes = {name: found.notes[name] for name in ("concentration", "exchanges") if name in found.notes}
    sites = prepared.samples.sites.index[found.sites].tolist()
    yield Outcome(metrics, len(set(sites)), {**notes, "sites": sites})
