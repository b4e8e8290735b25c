"""Words of the results page."""

from __future__ import annotations

__all__ = [
    "ABLATION",
    "ANSWERS",
    "BY_TIME",
    "CGAN",
    "DRAWN",
    "FIGURES",
    "HEAD",
    "L1",
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
seed, commit, versions, time and memory. Every number can be had again by the command named with it; a case that has
its line is skipped. All choices are made without the test part. Lower is better. Mean over seeds, with the range.

| data | what | parts |
|---|---|---|
| MNIST | digits, 28 x 28, in [0, 1] | the usual 60000 and 10000; `small` trains on 10000 |
| IPSL | CMIP6 IPSL-CM6A-LR, near-surface air temperature anomalies, 20 x 20 | one historical run, tested on another |
| NCEP | reanalysis, surface air temperature anomalies, 73 x 144 | first 80 % of the months, tested on the rest |
| CelebA | faces, grey, 64 x 64, in [0, 1] | first 8000, tested on the next 2000 |
| SST | NOAA OI SST anomalies, 5 degrees, embedded | first 80 % of the months, tested on the rest |
| OISST 2.5° | the same at 2.5 degrees, 73 x 144, 6981 cells of sea | first 80 % of the months, tested on the rest |
| Isolet | 617 features of spoken letters, 1560 samples | a random fifth is tested on |
| COIL20 | 20 objects from 72 sides, 32 x 32 | a random fifth is tested on |
"""
QUALITY = """`keyhole-bench quality`: `auto` chooses sites and reconstructor with a limit of 1200 seconds on at most
2 cores, and takes less where it has nothing left to try; what is in closed form does not stop midway, so it may take
more. "Best classical + ridge" is the better of QR and greedy; "its sites" compares `auto` with the better of them when
their sites get the same reconstructor, chosen the same way, in the same time."""
BY_TIME = """`keyhole-bench quality --limit` with the seconds at the head of each column: what `auto` leaves, as a share
of what the best classical sites leave with ridge, which take seconds; in brackets the minutes that it took."""
ABLATION = """`keyhole-bench ablation --limit` with the seconds of the protocol: `auto` with one stage left out, and
with each law in the search's seat, by itself or with swaps behind it. The time that a missing stage does not take
goes to those that are left."""
NETWORKS = """`keyhole-bench networks`: greedy's sites and kriging (or a network that learns for 300 s), errors by area
where there is latitude, a tenth of the samples held back to calibrate the bands. "Of none" is the error as a share of
that without constraints. "Within the 90 % band" is the share of the test part's truths that lay in it, in all and by
latitude. Sites that are lost are drawn at random, thirty times; the others answer for them."""
TABLES = """`keyhole-bench tables` (the peers come with `pip install 'keyhole-benchmarks[peers]'`). Each selector
sees the same
standardised columns of four fifths of the samples, and chooses K of them. Accuracy is what extremely random trees (50,
mean of three forests) tell from them on the other fifth; variance left is what ridge does not rebuild of all columns
from them. Mean over splits, with its standard error. Keyhole's selectors have the protocol's seconds and stop
earlier where there is nothing left to try; LassoNet ranks by the penalty at which a feature leaves its path, STG by its
gates after 500 epochs of its example's settings."""
SPEED = """`keyhole-bench speed`: the median time of one thing as a share of another's, turn by turn in one run, since
machines differ and are never quiet. PySensors is 0.4.3 (`pip install 'keyhole-benchmarks[peers]'`), on 500 samples
of 200000
sites, 100 components, K = 100, sites and ridge; errors are shares of the variance of 100 other samples."""
ANSWERS = """Each row is the ratio of two methods' mean squared errors at equal data, K, seed and network in Table 1,
over the data and K that all methods have: the mean (geometric) over K and seeds, the range, and in how many pairs the
first is lower. Pairs of one data set are not independent. Runs whose law's K likeliest sites held less than 0.8 of
its count are left out: there was no choice of sites to judge. "Says" goes by the means of data sets with three pairs
or more; within 2 % of one is no difference. "As in the paper" is the network trained with the masks: a ResNet for the
laws, another decoder for CAE, so that CAE's rows there compare systems, not sites; QR and greedy have the laws'
ResNet, trained on the same samples, as long, on fixed sites. "Our refit", ridge + a dense network on the fixed sites,
is the same for all."""
TABLE1 = """`keyhole-bench table1 --protocol small`. "As in the paper": its ResNet (2 blocks, 16 filters, no mask
channel) trained with soft masks at its temperature (0.3; 2/3 for SCT), no warm start, no refit; CAE with a dense
decoder on MNIST and DCGAN elsewhere. What `small` cuts: at most 10000 images; 1000 steps of 128 samples (NCEP and
CelebA: 600 of 32) in place of 550 epochs, CAE 4000 (2000) in place of 1400; the network's step is 2e-3, each law's
is its own, chosen on the validation part of IPSL and MNIST (below), both rising and falling, in place of 2e-4; K is
held by dual ascent (the price of the expected L0 moves until the count is K, which falls from half of the sites to K
over the first half of the run) in place of a grid of weights. `--protocol paper` cuts nothing but the grid of weights.

"Concentration" is the share of the law's count that its K likeliest sites hold; † marks methods that ended below
0.95 in some seed: there the sites at the end of the ranking are nearly a draw. "Distinct" counts CAE's distinct
features; its refit gets K sites, filled up with the most variable ones. The paper's climate and CelebA rows are of
other data and an unknown scale."""
STEPS = """`keyhole-bench steps`. Laws move at very different speeds, so that one step for all would decide the order
of methods. Each law, and CAE's rows, get the step with the least validation error at K = 20, for IPSL and for
MNIST; NCEP and CelebA, which have more sites and shorter runs, have MNIST's. VLN's `W` has 1/16 of the step of its `b`:
16 of its weights make one spread, and with the same step the law did not concentrate. HNet-LN's best step on
MNIST with one seed did not settle with another, so its two best were run with three. Mean squared error on the
validation part, by step; of several seeds where their number stands in brackets."""
TABLE2 = """`keyhole-bench table2 --protocol small`. A DCGAN classifier sees the pixels that Table 1's methods chose
and nothing else; the least and the mean of five trainings on each mask. CAE's duplicates are filled up to K."""
WEIGHTS = """`keyhole-bench weights`. The paper's own way: train with each weight of the expected L0, take what
comes out, and round the count down and up to tens."""
CGAN = """`keyhole-bench cgan`. The same law, budget, generator and step (5e-4), once against a patch
discriminator (GAN + L1), once by squared error. Sharpness is the mean absolute step between
neighbouring pixels over that of the truth."""
L1 = """`keyhole-bench l1`. Halve a law's masks and let the network double its input: the reconstruction is the
same, an l1 penalty on the masks halves, and the number of sites that show, whose mean is our expected L0, stays. So
an l1 penalty has no minimum to find."""
DRAWN = """`keyhole-bench figures`, with seed 0. Faces of CelebA may not be published: its figures are drawn into
`benchmarks/private/`."""
FIGURES = {
    "table1": "Table 1 as a chart.",
    "densities": "Densities of the logit-normal: by mean and spread, by temperature, and stretched and clipped.",
    "averages": "Average of sampled masks for the four laws on MNIST, K = 30.",
    "covariance": "What VLN learned on MNIST: covariance of the logits of cells that open, correlation with likely "
    "sites, and by distance.",
    "samples-*": "Masks, what each method's own network rebuilds from them, and the truth.",
    "cgan-*": "Conditional GAN against squared error: sharper, and further from the truth.",
}
