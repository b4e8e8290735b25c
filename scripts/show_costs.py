"""Where the time goes: the profiles that docs/performance.md tells of.

``python scripts/show_costs.py vln`` needs MNIST under KEYHOLE_DATA (torch.profiler); ``linear`` is greedy, QR and ridge
on 500 samples x 200000 sites (cProfile), ``exchange`` a minute of exchanges on 500 samples x 10000 sites.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

from keyhole.core.run import Run
from keyhole.data.readers import read
from keyhole.models.reconstructors import Ridge
from keyhole.placement.classical import QR, Greedy
from keyhole.placement.exchange import Exchange
from keyhole_benchmarks import tasks

ROWS = 12


def vln() -> None:
    """A training of VLN with the dense decoder on MNIST."""
    duel = tasks.vln_step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        duel.ours()
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=ROWS, max_name_column_width=40))


def linear() -> None:
    """Greedy, QR, and ridge on QR's sites."""
    samples = read(tasks.field_of(500, 200_000, 0)).as_scaled()
    sites = QR().select(samples, 100, validation=None, run=Run()).sites
    told("greedy", lambda: Greedy(n_components=100).select(samples, 100, validation=None, run=Run()))
    told("qr", lambda: QR().select(samples, 100, validation=None, run=Run()))
    told("ridge", lambda: Ridge().fit(samples, sites, validation=samples, run=Run()))


def exchange() -> None:
    """Exchanges, for a minute at most."""
    samples, run = read(tasks.field_of(500, 10_000, 0)).as_scaled(), Run(deadline=time.monotonic() + 60)
    told("exchange", lambda: Exchange().select(samples, 50, validation=None, run=run))


def told(name: str, work: Callable[[], object]) -> None:
    """Profile one thing and print what took most."""
    found = cProfile.Profile()
    found.runcall(work)
    print(name)
    pstats.Stats(found).strip_dirs().sort_stats("tottime").print_stats(ROWS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["vln", "linear", "exchange"])
    {"vln": vln, "linear": linear, "exchange": exchange}[parser.parse_args().what]()
