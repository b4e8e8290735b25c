"""Texts of the results page."""

from __future__ import annotations

__all__ = [
    "ABLATION",
    "ANSWERS",
    "BY_TIME",
    "CGAN",
    "DRAWN",
    "EXAMPLES",
    "FIGURES",
    "FLOOR",
    "HEAD",
    "L1",
    "LINEAR_MEASUREMENTS",
    "NETWORKS",
    "QUALITY",
    "SPEED",
    "STEPS",
    "TABLE1",
    "TABLE2",
    "TABLES",
    "WEIGHTS",
]

HEAD = """# Results

Made by `keyhole-bench show` from the JSON lines in `benchmarks/results/`, one for each case, with its settings,
seed, commit, versions, time and memory. Every number can be reproduced by the command named with it; a case that has
a line is skipped. All choices are made without the test part. Lower is better. Mean over seeds, with the range.

| data | what | parts |
|---|---|---|
| MNIST | digits, 28 x 28, in [0, 1] | the usual 60000 and 10000; `small` trains on 10000 |
| IPSL | CMIP6 IPSL-CM6A-LR, near-surface air temperature anomalies, 20 x 20 | one historical run, tested on another |
| NCEP | reanalysis, surface air temperature anomalies, 73 x 144 | first 80 % of the months, tested on the rest |
| CelebA | faces, grey, 64 x 64, in [0, 1] | first 8000, tested on the next 2000 |
| SST | NOAA OI SST anomalies, 5 degrees, embedded | first 80 % of the months, tested on the rest |
| OISST 2.5° | the same at 2.5 degrees, 73 x 144, 6981 sea cells | first 80 % of the months, tested on the rest |
| Isolet | 617 features of spoken letters, 1560 samples | tested on a random fifth |
| COIL20 | 20 objects from 72 sides, 32 x 32 | tested on a random fifth |
"""
QUALITY = """`keyhole-bench quality`: `auto` selects sites and reconstructor with a limit of 1200 seconds on at most
2 cores, and stops earlier where nothing is left to try; closed-form steps are not interrupted, so it may take longer.
"Best classical + ridge" is the better of QR and greedy. "Its sites" is the error of `auto` relative to the better of
them when their sites get the same reconstructor, selected in the same way and in the same time. Lines until
2026-11-18 are of an `auto` that had learned masks among its stages for fields, and took the smallest error."""
BY_TIME = """`keyhole-bench quality --limit` with the seconds at the head of each column: the error of `auto` relative
to the best classical sites with ridge, which take seconds; in brackets the minutes that it took."""
ABLATION = """`keyhole-bench ablation --limit` with the seconds of the protocol: `auto` with one stage left out, and
with each mask distribution in place of the search, by itself or followed by the kernel exchange. The time of a missing
stage goes to the remaining ones."""
NETWORKS = """`keyhole-bench networks`: greedy sites and optimal interpolation (or a network trained for 300 s), errors
weighted by area where there is latitude, a tenth of the samples held out to calibrate the prediction intervals.
"Relative" is the error relative to that without constraints. Coverage is the share of test values within the 90 %
prediction interval, in total and by latitude. Failing sites are drawn at random, thirty times, and imputed from the
others."""
FLOOR = """`keyhole-bench floor`: the default `keyhole.select(data, k)` beside the usual way without Keyhole, twenty
lines of NumPy and SciPy (`keyhole_benchmarks/plain.py`): sites by QR pivoting of K principal components, and ridge with
its strength by leave-one-out errors, weighted by area and about a monthly climatology where there are latitudes and
dates. Both are given the same samples, the first four fifths of a series or a random four fifths of independent
samples, and are scored on the others, which neither has seen. "Floor" and "`select`" are unexplained variance about the
given samples' climatology (or mean), "ratio" is the second by the first (standard error by leaving out ten blocks in
turn). "Reported" is the error that the plan itself states, with its standard error; † marks where it is neither within
25 % of the true one nor within two standard errors. Coverage is the share of the later values within the 90 %
prediction interval."""
GRAPHS = """`keyhole-bench graphs`: the share of lake water at the junctions of the embedded water network
([docs/graphs.md](graphs.md)), unexplained variance of four days after those that were measured. A third of the measured
hours is the validation part; closed forms are fitted to all of them. Masks are learned from scratch
(`warm_start=none`)."""

LEARNED = """`keyhole-bench learned`. Exactly K sites by each method, then the same refit: ridge + a dense network for
the field, a dense network for the class, 2000 steps, stopped early by the validation part. Masks are trained for their
default number of steps (with a dense decoder, or the Gaussian one of few samples), or for 800 steps with kernel ridge
behind them; local search has two random restarts. Nothing has a time limit. Mean over seeds, with its standard error;
ratios are of equal seeds. QR, greedy and forward selection are not random: between seeds only their refit differs."""

GRADIENTS = """`keyhole-bench gradients`: bias and standard deviation of estimates of the gradient in the parameters of
a mask distribution, both relative to the norm of the gradient, which is known by enumeration of all masks of six sites
(squared error of a fixed linear decoder, K = 2; means over three problems). Each estimate is from 16 masks. A cell has
bias / standard deviation / cosine of the angle between mean estimate and gradient (the scale of a gradient does not
matter to Adam), all from 4000 estimates, so that an unbiased estimator shows a bias of about a 63rd of its deviation by
chance. VLN has rank 2 and an independent part of 0.3; in the concentrated state two sites have marginals of about
0.8."""
EXAMPLES = """`keyhole-bench examples` ([docs/examples.md](examples.md)): sites are learned through a decoder and a loss
of one's own, and then the same untrained decoder is trained on fixed sites, with the same loss, samples, seed, steps
(400) and validation whatever selected them. Errors are on the test part. "Edges": MNIST, squared error and squared
error of the differences between neighbouring pixels, K = 20. "Class": MNIST's digit, cross-entropy, K = 20. "Flow":
made-up vortex streets, squared error and squared divergence, K = 15. Masks are trained for 600 steps from a decoder on
that has been trained on random masks (600 steps); they start at the sites of greedy selection (forward selection for
the class; `cold`, at none, has no lines yet). The local search after warm masks goes by squared error, for the class by
that of kernel ridge on the indicators of the classes, not by the loss of the example. Each seed has 3000 training and
1000 validation samples of its own; the test part is the same. The last column is the difference to the best classical
sites (by the mean loss over seeds), paired by seed, with its standard error; below zero the sites are better. All
settings were chosen by validation loss, with a seed that is not shown. Forest has 50 trees; the kernel exchange has no
restarts and ends after 60 seconds, as do masks with a local search, of which half is for the masks."""
TABLES = """`keyhole-bench tables` (other packages come with `pip install 'keyhole-benchmarks[peers]'`). Each selector
sees the same standardised columns of four fifths of the samples, and selects K of them. Accuracy is that of extremely
randomised trees (50, mean of three forests) on the other fifth; unexplained variance is that of ridge, for all columns
from the selected ones. Mean over splits, with its standard error. Differences from the first are paired, split by
split. Keyhole's selectors have a time limit of 24 seconds, of which a third is for selecting, and stop earlier where
nothing is left to try; the others have none (with `--processor` it is counted by the processor's clock). LassoNet
ranks by the penalty at which a feature leaves its path, STG by its gates after 500 epochs of its example's settings."""
SPEED = """`keyhole-bench speed`: the median time of one task relative to another's, alternating in one run, since
machines differ and their load varies. PySensors is 0.4.3 (`pip install 'keyhole-benchmarks[peers]'`), on 500 samples of
200000 sites, 100 components, K = 100, sites and ridge; errors are unexplained variance on 100 other samples."""
ANSWERS = """Each row is the ratio of two methods' mean squared errors at equal data, K, seed and network in Table 1,
over the data and K that all methods have: the geometric mean over K and seeds, the range, and in how many pairs the
first is lower. Pairs of one data set are not independent. Runs whose concentration (the share of the mask
distribution's count at its K most probable sites) stayed below 0.8 are excluded: no sites had been selected. "Result"
goes by the means of data sets with three pairs or more; within 2 % of one is no difference. "As in the paper" is the
network trained with the masks: a ResNet for the mask distributions, another decoder for CAE, so that CAE's rows compare
systems, not sites; QR and greedy have the same ResNet, trained on the same samples for as many steps, on fixed sites.
"Our refit", ridge + a dense network on the fixed sites, is the same for all. All of it holds for this protocol alone:
under `small`, K is held by dual ascent, trainings are short, and the ResNet's strides draw sites to a lattice."""
TABLE1 = """`keyhole-bench table1 --protocol small`. "As in the paper": its ResNet (2 blocks, 16 filters, no mask
channel) trained with soft masks at its temperature (0.3; 2/3 for SCT), no warm start, no refit; CAE with a dense
decoder on MNIST and DCGAN elsewhere. What `small` cuts: at most 10000 images; 1000 steps of 128 samples (NCEP and
CelebA: 600 of 32) in place of 550 epochs, CAE 4000 (2000) in place of 1400; the network's learning rate is 2e-3, that
of each mask distribution was selected on the validation part of IPSL and MNIST (below), both with a one-cycle schedule,
in place of 2e-4; K is held by dual ascent (the multiplier of the expected L0 is updated until the count is K, which is
annealed from half of the sites to K over the first half of the run) in place of a grid of weights; and soft masks are
kept from interior modes and marginals from 0 and 1. `--protocol paper` has none of that, and may thin its grid of
weights (`--weights`).

"Concentration" is the share of the mask distribution's count at its K most probable sites; † marks methods below 0.95
for some seed, where the last sites of the ranking are nearly random. "Distinct" counts CAE's distinct features; its
refit gets K sites, completed with those of the largest variance. "Parity" is the share of the sites with the commonest
of the four parities of row and column: 1 where all lie on one lattice of period 2, as the strides of the ResNet have
it. The paper's climate and CelebA rows are of other data
and an unknown scale."""
_SHIFTED = """`keyhole-bench table1 --protocol shifted`: as `small` (above), but that in each training step the ResNet
sees its grid shifted by 0 to 3 rows and columns at random, and reconstructs with the mean over all 16 phases of its
strides, on classical sites too. So nothing draws sites to the lattice of the strides. Columns are as in `small`; refits
are of later code than there, so that they compare within this table alone."""
_OF_PAPER = """`keyhole-bench table1 --protocol paper`: the paper's loop on all samples, with a weight of the expected
L0 from its grid, soft masks, its learning rates, epochs and batches, and nothing that guides the mask distribution. K
is what results, rounded down and up to tens; of several weights that lead to a K, that counts whose count is nearest to
it, and a K to which no weight leads has no row. Columns are as in `small`."""
TABLE1_OF = {"shifted": _SHIFTED, "paper": _OF_PAPER}  # other protocols have TABLE1
# Below a table that has such a row.
LINEAR_MEASUREMENTS = """The reference has no sites: K rows of weights over the whole field are trained together with a
decoder of the refit's size, for as many steps (Wu et al., 2019), from the K leading principal components on. Images are
not augmented, which they may be for the refit."""
STEPS = """`keyhole-bench steps`. Mask distributions need very different learning rates, so that one for all would
decide the order of methods. Each of them, and CAE's selector layer, gets the learning rate with the least validation
error at K = 20, for IPSL and for MNIST; NCEP and CelebA, which have more sites and shorter runs, have MNIST's. VLN's
`W` has 1/16 of the learning rate of its `b`: 16 of its weights make one standard deviation, and with the same learning
rate the distribution did not concentrate. HNet-LN's best learning rate on MNIST with one seed did not converge with
another, so its two best were run with three. Mean squared error on the validation part, by learning rate; the mean
over several seeds where their number is in brackets."""
TABLE2 = """`keyhole-bench table2 --protocol small`. A DCGAN classifier sees the pixels that Table 1's methods selected
and nothing else, with five trainings on each mask, of which there is one for each seed of Table 1: the least error of
all trainings, and the mean over masks of the mean of five, with its range where there are several masks. CAE's
duplicates are completed to K."""
WEIGHTS = """`keyhole-bench weights`. As in the paper: train with each weight of the expected L0, and round the
resulting count down and up to tens, without dual ascent and recentring. "Polarised" is whether masks are kept from
interior modes and marginals from 0 and 1; with `--no-polarise` they are not, as in the paper."""
CGAN = """`keyhole-bench cgan`. The same mask distribution, budget, generator and learning rate (5e-4), once with a
patch discriminator (GAN + L1), once with squared error. Sharpness is the mean absolute difference of neighbouring
pixels relative to that of the true images."""
L1 = """`keyhole-bench l1`. Halve the masks and let the network double its input: the reconstruction is the same, an l1
penalty on the masks halves, and the number of open sites, whose mean is our expected L0, stays. So an l1 penalty has no
minimum."""
DRAWN = """`keyhole-bench figures`, with seed 0. Faces of CelebA may not be published: its figures are drawn into
`benchmarks/private/`."""
FIGURES = {
    "table1": "Table 1 as a chart.",
    "densities": "Densities of the logit-normal: by mean and deviation, by temperature, and stretched and clipped.",
    "averages": "Average of sampled masks for the four mask distributions on MNIST, K = 30.",
    "covariance": "What VLN learned on MNIST: covariance of the logits of open sites, correlation with probable "
    "sites, and by distance.",
    "samples-*": "Masks, reconstructions by each method's own network, and the true samples.",
    "cgan-*": "Conditional GAN against squared error: sharper, with a larger error.",
}
