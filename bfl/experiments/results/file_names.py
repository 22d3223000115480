"""The names of the files that one run leaves behind, and what they hold.

| file | content |
| --- | --- |
| ``config.toml`` | the complete configuration |
| ``given.toml`` | what of it was given; the rest is the strategy's, or default |
| ``environment.json`` | versions, machine, commit |
| ``network.json`` | what predicting with the posterior takes besides: images, classes, network |
| ``run-key``, ``run.lock`` | which run this is, and who writes here: see ``identity`` |
| ``partition.json`` | who holds which data |
| ``data.json`` | which data these are: digests of those that lie where the server does |
| ``rounds-begun`` | the rounds begun, where each is a private release of its own |
| ``rounds.jsonl`` | one line per round, appended as the round ends |
| ``warnings.txt`` | what the results do not show by themselves, a line each; only if there is any |
| ``refusals.txt`` | which client failed or was refused in which round, and why; if any |
| ``posterior.npz`` | the global posterior: mean, variance, point, manifest |
| ``closing.npz`` | what the closing round has found: a last layer, a density of features, … |
| ``best-posterior.npz`` | that of the best round so far, with the round, and metric and value |
| ``predictions.npz`` | labels, mean probabilities and uncertainties of the test examples |
| ``metrics.json`` | metrics, mean uncertainties and retention areas; written last of all |
| ``clients.json`` | how each client's models do on its own test data; where clients evaluate |
| ``foreign.json`` | how well each uncertainty tells foreign images (``ood-dataset``) |
| ``corruptions.json`` | metrics of corrupted test images by strength (``corruptions``) |
| ``retention.json`` | retention curves on a grid of percents, with their areas |
| ``ensemble.json`` | retention curves of an ensemble (``predictive``), its members |
| ``examples.npz`` | the test images that are predicted with the most and the least certainty |
| ``figures/`` | PNG files |

Every file but ``rounds.jsonl`` is written to a temporary file beside it and then renamed, so a
reader (or a run that is killed) never meets half a file.
"""

from __future__ import annotations

from bfl.experiments.results.round_log import ROUNDS

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
NETWORK = "network.json"
PARTITION = "partition.json"
DATA = "data.json"
WARNINGS = "warnings.txt"
REFUSALS = "refusals.txt"
POSTERIOR = "posterior.npz"
BEST_POSTERIOR = "best-posterior.npz"
CLOSING = "closing.npz"
PREDICTIONS = "predictions.npz"
METRICS = "metrics.json"
CLIENTS = "clients.json"
RETENTION = "retention.json"
ENSEMBLE = "ensemble.json"
EXAMPLES = "examples.npz"
FOREIGN = "foreign.json"
CORRUPTIONS = "corruptions.json"
FIGURES = "figures"

FINAL_RESULTS = (
    METRICS,
    PREDICTIONS,
    RETENTION,
    ENSEMBLE,
    CLIENTS,
    EXAMPLES,
    FOREIGN,
    CORRUPTIONS,
    CLOSING,
    POSTERIOR,
)
"""Results of the end of a run, without its figures. The file that says that it is finished is
removed first and written last."""

FILES_OF_A_BEGUN_RUN = (
    CONFIG,
    NETWORK,
    PARTITION,
    DATA,
    ROUNDS,
    POSTERIOR,
    BEST_POSTERIOR,
    CLOSING,
    PREDICTIONS,
    METRICS,
    CLIENTS,
    RETENTION,
    ENSEMBLE,
    EXAMPLES,
)
"""Files that only a run leaves which has begun: not its environment, written before it has."""
