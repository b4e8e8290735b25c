"""Functions run in two processes that train together, forked from one that has imported PyTorch."""

from __future__ import annotations

import os
import pickle
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from command_processes import CONTEXT


def in_two(work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what a function of a module gives in each of two processes, with the variables that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = []
    for rank in ("0", "1"):
        mine, its = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_run, args=(its, both | {"RANK": rank, "LOCAL_RANK": rank}, work, arguments))
        process.start()
        its.close()
        started.append((process, mine))
    found = [_received(end) for _, end in started]
    for process, _ in started:
        process.join()
    for result in found:
        if isinstance(result, str):
            raise AssertionError(result)
    return [result[0] for result in found]


def _received(end: Connection) -> Any:
    try:
        return pickle.loads(end.recv_bytes())
    except EOFError:
        return "the process ended without a result"


def _run(end: Connection, variables: dict[str, str], work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Send the result in a tuple, or the traceback."""
    os.environ.update(variables)
    import torch

    torch.set_num_threads(1)
    try:
        result: Any = (work(*arguments),)
    except BaseException:  # the other one must not wait for this one
        result = traceback.format_exc()
    end.send_bytes(pickle.dumps(result))
    end.close()
    os._exit(0)  # at once: what the other process waits for would never come
