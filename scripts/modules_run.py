"""Which modules of Keyhole run in one ``kh.select(field, k=25)``: those in which a function body is executed.

``python scripts/modules_run.py`` prints the modules with the functions that ran, most first, and their number.
``--seconds`` limits the time of the selection (default 20). The number is how much of the code somebody has to know
who follows one selection from the top.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import keyhole as kh

ROOT = Path(kh.__file__).parent


def main() -> None:
    """Run one selection on the sea-surface temperature and print what ran."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=20.0)
    field, ran = kh.datasets.sst(), defaultdict(set)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(str(ROOT)):
            ran[Path(code.co_filename).relative_to(ROOT)].add(code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        kh.select(field, k=25, time_limit=options.parse_args().seconds)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    for path, functions in sorted(ran.items(), key=lambda item: -len(item[1])):
        print(f"{len(functions):4d}  {path}")
    print(f"{len(ran)} modules, {sum(map(len, ran.values()))} functions")


if __name__ == "__main__":
    main()
