"""Protocols: at which scale the paper's systems are trained, and what a smaller scale leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from keyhole.core.errors import SettingsError

__all__ = ["PROTOCOLS", "Protocol", "paper_ks", "protocol_of"]

_TEMPERATURE = {"sct": 2 / 3}  # of the concrete distribution; the logit-normal ones have 0.3


@dataclass(frozen=True)
class Protocol:
    """How much data and how many steps, the same for all methods of a benchmark.

    Parameters
    ----------
    samples
        Most samples for training and validation together; None for all.
    epochs, steps
        Passes over the training samples, or optimiser steps where ``steps`` is not None.
    batch, rate
        Of the network.
    mask_rates, latent_rate
        Learning rate of each mask distribution's parameters, and the share of it for the weights of VLN's latent.
    fall
        Share of the run over which K falls from the first count of the mask distribution to what is asked.
    budget
        ``"dual"``: K is asked for, and held by dual ascent; ``"penalty"``: it results from a weight of the expected L0,
        as in the paper.
    weights
        Grid of weights of the expected L0.
    polarise
        Whether masks are kept from interior modes and marginals from 0 and 1, which the paper leaves to chance.
    phases
        Phases of the ResNet's strides that are averaged after training with random shifts; 0 for neither, as in the
        paper.
    cycle
        Whether the step rises and falls over a run; else it is constant.
    cae_steps, cae_rate, row_rate
        Of the concrete autoencoder, whose steps are cheap; its selector layer has a learning rate of its own.
    precision
        As lightning-fabric takes it; the paper trains in mixed precision.
    """

    name: str
    samples: int | None
    batch: int
    rate: float
    mask_rates: Mapping[str, float]
    cycle: bool
    cae_rate: float
    row_rate: float
    latent_rate: float = 1.0
    fall: float = 0.5
    budget: Literal["dual", "penalty"] = "dual"
    weights: tuple[float, ...] = ()
    polarise: bool = True
    phases: Literal[0, 1, 4, 16] = 0
    epochs: int = 0
    cae_epochs: int = 0
    steps: int | None = None
    cae_steps: int | None = None
    precision: str = "bf16-mixed"

    def distribution(self, distribution: str, samples: int) -> dict[str, Any]:
        """Return the settings of the learned selector as the paper trains it: soft masks, no warm start.

        The weight of the expected L0 is for `weights.Sweep` to add.

        Parameters
        ----------
        distribution
            Name of the mask distribution.
        samples
            Number of training samples.

        Returns
        -------
        dict
            Settings by name.
        """
        lam = _TEMPERATURE.get(distribution, 0.3)
        return {
            "budget": self.budget,
            "k_anneal": self.fall if self.budget == "dual" else 0.0,
            "masks": "soft",
            "polarise": self.polarise,
            "decoder": "resnet",
            "mask_channel": False,
            "n_phases": self.phases,
            "warm_start": "none",
            "temperature": [lam, lam],
            "mask_learning_rate": self.mask_rates[distribution],
            **({"latent_learning_rate": self.latent_rate} if distribution == "vln" else {}),
            "n_masks": self.batch,
            "train": self._train(self.rate, self._count(self.steps, self.epochs, samples)),
        }

    def cae(self, decoder: str, samples: int) -> dict[str, Any]:
        """Return the settings of the concrete autoencoder.

        Parameters
        ----------
        decoder
            Name of its decoder.
        samples
            Number of training samples.

        Returns
        -------
        dict
            Settings by name.
        """
        steps = self._count(self.cae_steps, self.cae_epochs, samples)
        return {"decoder": decoder, "selector_learning_rate": self.row_rate, "train": self._train(self.cae_rate, steps)}

    def resnet(self, samples: int) -> dict[str, Any]:
        """Return the settings of the paper's network on fixed sites, with as many steps as with masks.

        Parameters
        ----------
        samples
            Number of training samples.

        Returns
        -------
        dict
            Settings by name.
        """
        train = self._train(self.rate, self._count(self.steps, self.epochs, samples))
        return {"mask_channel": False, "n_phases": self.phases, "train": train}

    def classifier(self, samples: int) -> dict[str, Any]:
        """Return the settings of the classifier's training, for Table 2.

        Parameters
        ----------
        samples
            Number of training samples.

        Returns
        -------
        dict
            Settings by name.
        """
        return self._train(self.rate, self._count(self.steps, self.epochs, samples))

    def circumstances(self) -> dict[str, Any]:
        """Return what all cases of the protocol have in common, beside the settings of methods.

        Returns
        -------
        dict
            Number of samples and precision.
        """
        return {"samples": self.samples, "precision": self.precision}

    def _count(self, steps: int | None, epochs: int, samples: int) -> int:
        return steps if steps is not None else max(1, epochs * samples // self.batch)

    def _train(self, rate: float, steps: int) -> dict[str, Any]:
        return {
            "steps": steps,
            "batch_size": self.batch,
            "learning_rate": rate,
            "weight_decay": 0.0,
            "ema_decay": 0.0,
            "gradient_clip": 1e6,
            "schedule": "cycle" if self.cycle else "constant",
        }


_PAPER = Protocol(
    "paper", None, 256, 2e-4, dict.fromkeys(("iln", "sct", "vln", "hnet"), 2e-4),
    cycle=False, cae_rate=1e-3, row_rate=1e-3, epochs=550, cae_epochs=1400, budget="penalty", polarise=False,
    weights=tuple(round(0.01 + 0.03 * step, 2) for step in range(34)),
)  # fmt: skip
_PAPER_128 = replace(_PAPER, batch=128)
_PAPER_FACES = replace(_PAPER_128, epochs=140, cae_epochs=400)
# These learning rates have the least validation error at K = 20: keyhole-bench steps.
_SMALL = Protocol(
    "small", 10_000, 128, 2e-3, {"iln": 0.01, "sct": 0.02, "vln": 0.02, "hnet": 0.001},
    cycle=True, cae_rate=1e-3, row_rate=0.2, latent_rate=1 / 16, steps=1000, cae_steps=4000,
    weights=(0.01, 0.04, 0.1, 0.31, 1.0),
)  # fmt: skip
_SMALL_DIGITS = replace(_SMALL, mask_rates={"iln": 0.1, "sct": 0.2, "vln": 0.2, "hnet": 0.005})
_SMALL_WIDE = replace(_SMALL_DIGITS, batch=32, steps=600, cae_steps=2000)

_SMALL_OF = {"mnist": _SMALL_DIGITS, "celeba": _SMALL_WIDE, "ncep": _SMALL_WIDE, "": _SMALL}

PROTOCOLS: dict[str, dict[str, Protocol]] = {
    "paper": {"mnist": _PAPER, "celeba": _PAPER_FACES, "": _PAPER_128},
    "small": _SMALL_OF,
    # As small, but nothing draws sites to the lattice of the ResNet's strides.
    "shifted": {data: replace(small, name="shifted", phases=16) for data, small in _SMALL_OF.items()},
}


def protocol_of(name: str, data: str) -> Protocol:
    """Return the protocol for a data set.

    Parameters
    ----------
    name
        Name of the protocol.
    data
        Name of the data set.

    Returns
    -------
    Protocol
        The protocol, which may depend on the data set.
    """
    if name not in PROTOCOLS:
        raise SettingsError(f"protocol {name!r} is not known; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name].get(data, PROTOCOLS[name][""])


def paper_ks(data: str, known: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the paper's K for a data set, or raise if the paper does not have it.

    Parameters
    ----------
    data
        Name of the data set.
    known
        K of the paper by data set.

    Returns
    -------
    tuple of int
        Numbers of sites.
    """
    if data not in known:
        raise SettingsError(f"--k is needed for {data}: the paper does not have it, it has {', '.join(known)}")
    return known[data]
