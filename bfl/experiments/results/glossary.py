"""Glossary of a run's numbers, from the docstrings of metrics and uncertainties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import dedent

from bfl.evaluation.metrics import metrics
from bfl.evaluation.metrics.base import Metric
from bfl.evaluation.uncertainty import uncertainties
from bfl.registry import Component

_HEAD = """# Glossary

`bfl glossary` prints this page. An arrow points to the better side. Numbers are of the test data,
for the posterior after a round (`rounds.jsonl`, `evaluate-mc-samples` samples) or the final one
(`metrics.json`, `mc-samples` samples). p̂_m is the prediction of sample m, p̄ the mean over the
samples, and C the number of classes.

"""


_DERIVED = """## Made from these

- `mean-NAME`: the mean of an uncertainty over the test examples, in its unit.
- `retention-area-METRIC-NAME`: the area under the curve of a metric of the examples that are kept
  when the most uncertain ones, by that uncertainty, are discarded; in the metric's unit, better on
  the metric's side. Fischer et al. (2024), section 3.3; Filos et al. (2019).
- `retention-gain-METRIC-NAME`: that area minus the metric of all examples, positive where sorting
  helps; uncertainties below what float32 resolves, 9e-13, count as tied. With `random` for NAME,
  what an order at random reaches, the root mean square over all orders: less than about twice as
  much is chance. Both in a run's `retention.json` and in the tables of studies.
- `validation-NAME`: a metric or mean uncertainty of the server's own images (`server-data`) in
  place of the test data, in `rounds.jsonl`.
- `meme-NAME`, `personal-NAME`: with `evaluated-by="clients"`, a metric of a client's copy of the
  global model after training, and of its personal model, on the client's own test split; besides
  them `better-accuracy`, the greater accuracy of the two. `rounds.jsonl` has them client by client
  under `per-client`, `clients.json` the last and of accuracies the best of all rounds, with
  `global-NAME`, those of the final network, and `metrics.json` their means over the clients,
  `clients-NAME`. Yang et al. (2023), section 5.
- `impossible-NAME`: in `clients.json`, a number that a client has sent under NAME and that cannot
  be, such as an accuracy above 1. Of such a client nothing that it has said stands in its row or in
  the means; nor does the number in the means of `rounds.jsonl`.
- `log-precision-spread`, `distance-from-average`: of pools by precisions, how much the clients'
  log-precisions differ, √(mean over parameters of their weighted variance), and how far the pooled
  mean is from the clients' weighted average, as a share of the average's step; both 0 where all
  clients have the same variances. In `rounds.jsonl`. Yang et al. (2023), after Eq. 3.12.
- `before-closing-NAME`: a metric of the final posterior by itself, where a closing round has moved
  its last layer and the metrics are of the closed network.
- `closing-rounds-made`: how many rounds of sums a closing round has taken.
- `conformal-coverage`, `conformal-size`: the share of conformal prediction sets that hold the true
  class, and how many classes they hold, the mean; `conformal-least-class-coverage`: the coverage of
  the class that has the least. `conformal-by-class-…`: of sets by a threshold for each class.
- `ood-NAME-auroc`, `-aupr`, `-fpr95`: how well one score tells foreign images (`ood-dataset`) from
  test images, see `foreign.json`. Yang et al. (2022), "OpenOOD". With `evaluated-by="clients"` also
  from each client's own, `global-ood-NAME-auroc`, beside `global-corrupted-NAME-METRIC`, a metric
  of its corrupted images (`corruptions`), the mean over the five strengths.
- `ensemble-NAME`: any of these of the ensemble that predicts besides the posterior
  (`predictive="ensemble"`). Its members are evaluated one by one: `ensemble-member-accuracy` and
  `ensemble-best-member-accuracy`, the mean and the greatest; `ensemble-samples-NAME` and
  `ensemble-clients-NAME`, the mean accuracy and calibration error of samples and of clients. Chen
  and Chao (2021), Figs. 1 and 9.
- `logits-not-finite`, `validation-logits-not-finite`, `ensemble-logits-not-finite`: how many logits
  of the first draw with any are not finite, as values of the model are too large, or of all members
  of an ensemble; in place of the metrics of these predictions.
- `ensemble-left-out`, `distillation-left-out`: how many models are left out of the ensemble that is
  evaluated, or that teaches, as their logits are not finite; where there are any.
- `epsilon`: ε of the rounds so far at δ = `privacy-delta`, of the client that was asked most often,
  where updates or their sum have privacy's noise; see privacy.md. Balle and Wang (2018).
- `example-epsilon`: ε of a single example at δ = `example-delta`, of the client that has
  made most steps, where training is private (`example-privacy`). Mironov, Talwar and Zhang (2019).
- `degree-of-spread`: the norm of all standard deviations, √Σ_d σ_d², without a better side. Ozer et
  al. (2022), section 4.
"""


_TERMS = """
## Terms of the parts

- *posterior*: independent Gaussians N(μ, σ²) over a network's weights, and *point parameters*,
  which have a value and no distribution (batch normalisation's; all of a deterministic network). A
  *global* one is the server's, which a *round* sends to *clients* and makes anew of theirs.
- *pool*, *weight*: the one posterior that a rule makes of the clients', and what each counts in it.
- *partition id*: which client, from 0; what its *partition* of the training data is.
- *prior*: what a variational client's loss compares its posterior with, KL[q ‖ p] besides the
  negative log-likelihood. *Cavity*: the global posterior without the client's own *factor*, its
  share in the product of prior and factors that the global posterior is in partitioned variational
  inference; *damping* is the share of a factor's change that a round makes.
- *control variate*: a running mean of gradients; SCAFFOLD's correction is a difference of two.

| key | what it picks |
| --- | --- |
"""


_SOURCE = re.compile(r"^(?:Reference|Source)s?:\s*")


def glossary_page(keys: Mapping[str, str]) -> str:
    """Return the page ``docs/glossary.md``.

    Args:
        keys: What each key says that picks a part.
    """
    parts = ["## Metrics\n", *map(glossary_entry, metrics.classes())]
    parts += ["## Uncertainties\n", *map(glossary_entry, uncertainties.classes())]
    rows = (f"| `{key}` | {keys[key]} |\n" for key in sorted(keys))
    return _HEAD + "\n".join(parts) + "\n" + _DERIVED + _TERMS + "".join(rows)


def glossary_entry(component: type[Component]) -> str:
    """Return what the page says of one metric or uncertainty: its docstring without the example."""
    arrow = ""
    if issubclass(component, Metric):
        arrow = " ↑" if component.higher_is_better else " ↓"
    aliases = "".join(f", `{alias}`" for alias in component.aliases)
    first, _, rest = (component.__doc__ or "").partition("\n")
    paragraphs = [first, *re.split(r"\n\s*\n", dedent(rest).strip())]
    kept = [" ".join(p.split()) for p in paragraphs if not p.startswith(("Example", "Attributes"))]
    text = "\n\n".join(_SOURCE.sub("Source: ", paragraph) for paragraph in kept if paragraph)
    return f"### `{component.name}`{aliases}{arrow}\n\n{text}\n"
