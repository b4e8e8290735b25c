"""Concrete autoencoder: K relaxed one-hot rows and a decoder, trained jointly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.objectives import reconstruction
from keyhole.models.reconstructors.dcgan import DCGANDecoder
from keyhole.models.reconstructors.networks import check_two_dimensional
from keyhole.placement.base import Selection, Selector, complete, with_fixed
from keyhole.placement.settings import CAESettings
from keyhole.training import loop as training
from keyhole.training.loop import Task, seeded
from keyhole.training.settings import TrainSettings

__all__ = ["Autoencoder", "ConcreteAutoencoder", "ConcreteRows", "collapsed", "make_decoder"]

_CONVERGED = 0.998
_CHUNK = 4096


class ConcreteRows(nn.Module):
    r"""K rows of logits `log a` over the sites, each a relaxed choice of one site.

    A sample of row `k` is a point of the simplex, with `G` standard Gumbel noise and `T` the temperature:

    .. math:: M_k = \mathrm{softmax}\!\left(\frac{\log a_k + G_k}{T}\right)

    As `T` falls it tends to one-hot, with probabilities `p_k = softmax(log a_k)`. Several rows may select the same
    site; ``overlap`` measures it.

    Parameters
    ----------
    rows, sites
        Numbers of rows and of observable sites.
    temperature
        `T`.

    References
    ----------
    Maddison, Mnih & Teh (2017). The concrete distribution. ICLR.

    Examples
    --------
    >>> rows = ConcreteRows(2, 5)
    >>> rows.sample(torch.Generator().manual_seed(0)).shape
    torch.Size([2, 5])
    """

    def __init__(self, rows: int, sites: int, *, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature
        self.logits = nn.Parameter(nn.init.xavier_normal_(torch.empty(rows, sites)))

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draw all rows once, ``(rows, sites)``."""
        exponential = torch.empty(self.logits.shape).exponential_(generator=generator)
        gumbel = -exponential.clamp_min(torch.finfo(torch.float32).tiny).log()
        return torch.softmax((self.logits + gumbel.to(self.logits.device)) / self.temperature, dim=1)

    def probabilities(self) -> Tensor:
        """Probability of each site in each row, ``(rows, sites)``."""
        return torch.softmax(self.logits, dim=1)

    def certainty(self) -> float:
        """Mean over the rows of the largest probability."""
        return float(self.probabilities().detach().amax(dim=1).mean())

    def log_probability_of(self, sites: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log probability of one site in each row, in double precision: converged rows differ in the last digits."""
        return np.asarray(self._log_probabilities()[np.arange(len(sites)), sites])

    def overlap(self) -> Tensor:
        """Share of the rows that select sites already selected: `sum_j max(0, sum_k p_kj - 1) / K`.

        Zero when all rows have converged to distinct sites, `(K - 1) / K` when all are on the same one.
        """
        return torch.relu(self.probabilities().sum(dim=0) - 1).sum() / len(self.logits)

    def most_probable(self) -> NDArray[np.int64]:
        """Most probable site of each row; several rows may have the same."""
        return self.logits.detach().argmax(dim=1).cpu().numpy()

    def assignment(self) -> NDArray[np.int64]:
        """One site for each row, all distinct, of the largest joint probability."""
        return np.asarray(linear_sum_assignment(self._log_probabilities(), maximize=True)[1], np.int64)

    def _log_probabilities(self) -> NDArray[np.float64]:
        return torch.log_softmax(self.logits.detach().double(), dim=1).cpu().numpy()


class DenseDecoder(nn.Sequential):
    """Two hidden layers (leaky ReLU, dropout) and a linear head: the decoder of the concrete autoencoder."""

    def __init__(self, inputs: int, outputs: int, *, width: int = 320, dropout: float = 0.1) -> None:
        hidden = [*_hidden(inputs, width, dropout), *_hidden(width, width, dropout)]
        super().__init__(*hidden, nn.Linear(width, outputs))


class ConvolutionalDecoder(DCGANDecoder):
    """The decoder of DCGAN, of whose grid the valid sites are kept."""

    def __init__(self, inputs: int, samples: ScaledSamples) -> None:
        super().__init__(inputs, samples.channels, check_two_dimensional(samples.sites.shape, "dcgan"))
        self.register_buffer("index", torch.from_numpy(samples.sites.index), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, inputs)`` to ``(N, channels * sites)``."""
        return super().forward(x).flatten(2)[:, :, self.get_buffer("index")].flatten(1)


def make_decoder(k: int, samples: ScaledSamples, settings: CAESettings) -> nn.Module:
    """Create the decoder from ``k`` readings to the valid sites.

    Parameters
    ----------
    k
        Number of rows.
    samples
        Scaled training samples.
    settings
        Name the decoder and its size.
    """
    inputs, outputs = k * samples.channels, samples.channels * len(samples.sites)
    if settings.decoder == "dcgan":
        return ConvolutionalDecoder(inputs, samples)
    return DenseDecoder(inputs, outputs, width=settings.width, dropout=settings.dropout)


def _hidden(inputs: int, outputs: int, dropout: float) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2), nn.Dropout(dropout)]


class Autoencoder(Task):
    """Joint training of rows and decoder on the reconstruction error.

    All samples of a batch are observed through one draw of the rows, `M x`, with several processes one in each; all
    channels of a site are observed together.

    Parameters
    ----------
    rows
        Relaxed one-hot rows.
    decoder
        From the readings to the valid sites.
    samples
        Scaled training samples.
    settings
        Settings of the selector.
    """

    def __init__(self, rows: ConcreteRows, decoder: nn.Module, samples: ScaledSamples, settings: CAESettings) -> None:
        super().__init__()
        self.rows, self.decoder, self.settings, self.samples = rows, decoder, settings, len(samples)
        self.register_buffer("cells", torch.from_numpy(samples.targets), persistent=False)
        observable = np.flatnonzero(samples.observable)
        self.register_buffer("observable", torch.from_numpy(observable), persistent=False)

    def forward(self, batch: Tensor, generator: torch.Generator) -> tuple[dict[str, Tensor], None]:
        """Reconstruct a batch from one draw of the rows."""
        x = self.get_buffer("cells")[batch]
        features = torch.einsum("km,ncm->nkc", self.rows.sample(generator), x[:, :, self.get_buffer("observable")])
        parts = {"reconstruction": reconstruction(self.decoder(features.flatten(1)), x.flatten(1))}
        if self.settings.distinct:
            parts["overlap"] = self.settings.overlap_weight * self.rows.overlap()
        return parts, None

    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups: a higher learning rate for the rows."""
        rows = {"params": list(self.rows.parameters()), "lr": self.settings.selector_learning_rate, "weight_decay": 0.0}
        return [{"params": list(self.decoder.parameters())}, rows]

    def begin(self, progress: float) -> None:
        """Anneal the temperature geometrically."""
        first, last = self.settings.temperature
        self.rows.temperature = first * (last / first) ** progress

    def done(self) -> bool:
        """Whether the rows have converged; never above temperature 1, where a draw is a mixture of sites."""
        return self.rows.temperature <= 1 and self.rows.certainty() > _CONVERGED

    def figures(self) -> dict[str, float]:
        """Largest probabilities, number of distinct sites and temperature of the rows."""
        return {
            "mean_max_probability": self.rows.certainty(),
            "distinct": float(len(np.unique(self.rows.most_probable()))),
            "temperature": self.rows.temperature,
        }


class ConcreteAutoencoder(Selector):
    """Concrete autoencoder: K relaxed one-hot selections of sites and a decoder, trained jointly.

    Several rows may converge to the same site. Then fewer than K distinct sites are found, the ranking is completed
    with the most variable sites, and the notes give the number of duplicates; ``reconstruct`` is the decoder with its
    own K rows. With ``distinct`` the loss has a penalty on the overlap of the rows, and finally each row is assigned a
    site of its own by the assignment of largest joint probability.

    Parameters
    ----------
    settings
        Fields of `CAESettings`, by name.

    References
    ----------
    Abid, Balin & Zou (2019). Concrete autoencoders for differentiable feature selection and reconstruction. ICML.

    Examples
    --------
    >>> import keyhole as kh
    >>> values = np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 2, 3]
    >>> samples = kh.read(values.astype(np.float32)).as_scaled()
    >>> quick = {"steps": 60, "batch_size": 16, "ema_decay": 0.0}
    >>> found = ConcreteAutoencoder(width=8, distinct=True, train=quick).select(samples, 2, validation=None, run=Run())
    >>> len(found.sites), found.notes["distinct"]
    (2, 2)
    """

    name: ClassVar[str] = "cae"
    settings_class: ClassVar[type[CAESettings]] = CAESettings
    options: CAESettings

    def incompatibility(self, samples: Samples | ScaledSamples) -> str | None:
        """The convolutional decoder needs a grid of two dimensions."""
        shape = samples.choices
        if self.options.decoder == "dense" or len(shape) == 2:
            return None
        return f"convolutions need a grid of two axes, not of shape {shape}"

    def refit(self, found: Selection, development: ScaledSamples, run: Run) -> Selection:
        """Keep the sites, which took a training to find; see `Selector.refit`."""
        return found

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Train rows and decoder, and take the sites from the rows."""
        task, history = self.learn(train, k, run)
        return collapsed(task, train, history)

    def learn(self, train: ScaledSamples, k: int, run: Run) -> tuple[Autoencoder, list[dict[str, float]]]:
        """Train rows and decoder; return the task, on the CPU, and the training log."""
        settings, chosen = self.options, self.options.train or _train_settings(len(train))
        with seeded(run.seed_of("concrete autoencoder")):
            rows = ConcreteRows(k, int(train.observable.sum()), temperature=settings.temperature[0])
            task = Autoencoder(rows, make_decoder(k, train, settings), train, settings)
        name = "learn cae distinct" if settings.distinct else "learn cae"
        identity = f"{train.fingerprint()} {k} {settings} {chosen} {run.seed}"
        history = training.train(task, chosen, name=name, identity=identity, run=run)
        return task.cpu().eval(), history


def collapsed(task: Autoencoder, train: ScaledSamples, history: Sequence[dict[str, float]] = ()) -> Selection:
    """Return the sites of trained rows, the most probable first, completed where rows are duplicates.

    Parameters
    ----------
    task
        The trained rows and decoder.
    train
        Scaled samples with their constraints.
    history
        Training log.
    """
    rows, candidates = task.rows, np.flatnonzero(train.observable)
    chosen = rows.assignment() if task.settings.distinct else rows.most_probable()
    ranked = chosen[np.argsort(-rows.log_probability_of(chosen), kind="stable")]
    found = list(dict.fromkeys(ranked.tolist()))
    notes = {
        "distinct": len(found),
        "duplicates": len(chosen) - len(found),
        "mean_max_probability": rows.certainty(),
    }
    notes |= {"reassigned": int((chosen != rows.most_probable()).sum())} if task.settings.distinct else {}
    reconstruct = partial(_reconstruct, task.decoder, candidates[chosen])
    return Selection(complete(candidates[found], len(chosen), train), history, notes, reconstruct)


def _reconstruct(decoder: nn.Module, sites: NDArray[np.int64], samples: ScaledSamples) -> NDArray[np.float32]:
    """Decode the readings at the rows' sites, in the order of the rows."""
    readings = np.ascontiguousarray(samples.readings(sites), np.float32)
    with torch.inference_mode():
        parts = [decoder(part.flatten(1)).numpy() for part in torch.split(torch.from_numpy(readings), _CHUNK)]
    return np.concatenate(parts).reshape(len(samples), samples.channels, -1)


def _train_settings(samples: int) -> TrainSettings:
    """The paper's learning rate, long enough for the rows to converge; no EMA of weights."""
    batch = int(min(256, max(16, samples // 2)))
    steps = int(min(4000, max(2000, 20 * samples // batch)))
    return TrainSettings(steps=steps, batch_size=batch, learning_rate=1e-3, weight_decay=0.0, ema_decay=0.0)


distinct_concrete_autoencoder = with_fixed(ConcreteAutoencoder, "cae_distinct", distinct=True)
