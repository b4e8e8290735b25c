"""Compare the selectors with the same reconstructor on the benchmark data, one JSON line for each case.

    KEYHOLE_DATA=... python scripts/bench_selectors.py          # run what is missing, then write docs/results.md
    python scripts/bench_selectors.py --show                     # only write docs/results.md from the lines

A case that is already in benchmarks/results/selectors.jsonl is skipped, so a stopped run goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import resource
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from keyhole import datasets
from keyhole.comparison import compare

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "selectors.jsonl"
PAGE = ROOT / "docs" / "results.md"
CLASSICAL, SEEDS = ("greedy", "qr", "variance", "random"), (0, 1, 2)
CASES = [("sst", 25), ("ipsl", 20), ("ipsl", 50), ("mnist", 20)]
METHODS = ("learned", *CLASSICAL)
# Linear rows measured before Keyhole was written, by independent code: (qr, greedy).
REFERENCE = {("ipsl", 20): (0.401, 0.379), ("ipsl", 50): (0.215, 0.212), ("mnist", 20): (3.37e-2, 3.34e-2)}


def identity(case: dict[str, Any]) -> str:
    """Hash of what defines a case."""
    return hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:16]


def lines() -> list[dict[str, Any]]:
    """Records so far; a torn last line is left out."""
    found = []
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def run_case(data: str, k: int, method: str, seed: int) -> dict[str, Any]:
    """Run one case and give its record."""
    case = {"bench": "selectors", "data": data, "k": k, "method": method, "reconstructor": "ridge", "seed": seed}
    started, cpu = time.monotonic(), time.process_time()
    row = compare(datasets.load(data), k, [method], reconstructor="ridge", seed=seed)
    plan = row.entries[0].plan
    return {
        "schema": 1,
        "case_id": identity(case),
        **case,
        "split": {"kind": plan.made["split"]["kind"], **plan.made["split"]},
        "protocol": "compare",
        "k_distinct": len(set(plan.indices.tolist())),
        "settings": plan.made["settings"],
        "notes": plan.made["notes"],
        "status": "ok",
        "metrics": plan.metrics["test"],
        "published": None,
        "comparable": False,
        "seconds": round(time.monotonic() - started, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "threads": torch.get_num_threads(),
        "commit": git("rev-parse", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        "versions": {name: version(name) for name in ("keyhole", "torch", "numpy")}
        | {"python": platform.python_version()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def git(*arguments: str) -> str:
    """Output of a git command in the repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run_missing() -> None:
    """Run every case that has no line yet, appending as they come."""
    done = {record["case_id"] for record in lines() if record["status"] == "ok"}
    for data, k in CASES:
        for method in METHODS:
            for seed in SEEDS if method in ("learned", "random") else SEEDS[:1]:
                case = {
                    "bench": "selectors",
                    "data": data,
                    "k": k,
                    "method": method,
                    "reconstructor": "ridge",
                    "seed": seed,
                }
                if identity(case) in done:
                    continue
                record = run_case(data, k, method, seed)
                RESULTS.parent.mkdir(parents=True, exist_ok=True)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(
                    f"{data} k={k} {method} seed {seed}: fvu {record['metrics']['fvu']:.4f}, {record['seconds']} s",
                    flush=True,
                )


def spread(values: list[float], form: str) -> str:
    """Mean, and the range where there are several."""
    mean = sum(values) / len(values)
    return format(mean, form) if len(values) == 1 else f"{mean:{form}} ({min(values):{form}} to {max(values):{form}})"


def page() -> str:
    """Render the results page from the lines alone."""
    records = lines()
    text = [
        "# Results",
        "",
        "Made by `python scripts/bench_selectors.py` from `benchmarks/results/selectors.jsonl`. Every method chooses",
        "on the same samples (everything but test), gets the same reconstructor (ridge, strength by leave-one-out), and",
        "is judged on the same test samples. Mean over seeds, with the range where a method is random. Lower is better.",
        "",
        "- `sst`: NOAA OI SST, 5 degrees, anomalies; the last 99 of 494 months are the test part.",
        "- `ipsl`: CMIP6 IPSL-CM6A-LR, 20 x 20, anomalies; trained on one historical run, tested on another.",
        "- `mnist`: 60000 to train, 10000 to test.",
    ]
    for data, k in CASES:
        here = [r for r in records if (r["data"], r["k"]) == (data, k)]
        if not here:
            continue
        text += [
            "",
            f"## {data}, K = {k}",
            "",
            "| method | test RMSE | variance left | seconds | concentration |",
            "|---|---|---|---|---|",
        ]
        rows = []
        for method in METHODS:
            own = [r for r in here if r["method"] == method]
            if own:
                fvu = [r["metrics"]["fvu"] for r in own]
                rmse = [r["metrics"]["rmse"] for r in own]
                told = [r["notes"]["concentration"] for r in own if "concentration" in r["notes"]]
                cells = [method, spread(rmse, ".4f"), spread(fvu, ".4f"), f"{max(r['seconds'] for r in own):.0f}"]
                rows.append((sum(fvu) / len(fvu), [*cells, spread(told, ".2f") if told else ""]))
        text += ["| " + " | ".join(cells) + " |" for _, cells in sorted(rows)]
        if (data, k) in REFERENCE:
            known = dict(zip(("qr", "greedy"), REFERENCE[data, k], strict=True))
            name = "mse" if data == "mnist" else "fvu"
            for method, value in known.items():
                ours = next(r["metrics"][name] for r in here if r["method"] == method)
                text.append(
                    f"\n`{method}` against independent code: {name} {ours:.4f} / {value:.4f} = {ours / value:.3f}."
                )
    dates = sorted({r["date"] for r in records})
    text += [
        "",
        f"Seeds {', '.join(map(str, SEEDS))}; {records[0]['threads'] if records else '?'} threads; {', '.join(dates)}.",
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    """Run and render."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true")
    if not parser.parse_args().show:
        run_missing()
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
