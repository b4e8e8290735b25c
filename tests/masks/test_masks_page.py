"""The page for people with their own PyTorch loop begins with twelve lines that learn."""

from __future__ import annotations

import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[2] / "docs" / "masks.md"


def test_the_first_twelve_lines_learn():
    """The paper's loop: it reconstructs, with fewer open sites than in the beginning."""
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[0]
    assert len([line for line in block.splitlines() if line]) == 12
    space: dict[str, object] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(block, str(PAGE), "exec"), space)
    masks, x = space["masks"], space["x"]
    assert masks.count() < 20 < 64 / 2
    assert len(set(masks.top(5).tolist())) == 5
    with torch.no_grad():
        error = (space["decoder"](masks.sample((len(x),), torch.Generator()) * x) - x).square().mean()
    assert float(error) < 0.1 * float(x.square().mean())
