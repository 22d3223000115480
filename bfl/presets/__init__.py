"""Presets: methods as values for configuration keys, each of which the user may override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.registry import Component, Registry

Values = Mapping[str, str | int | float | bool]


class Preset(Component):
    """A method of the literature as values for configuration keys, with components in full.

    They come before a key's default and after what the user says, also where that is the default.
    """

    values: ClassVar[Values] = {}


presets: Registry[Preset] = Registry("strategy", "bfl.presets")

_AVERAGES: Values = {"pooling": "naive-weighted-averaging"}
_AVERAGES_BY_SIZE: Values = {**_AVERAGES, "weighting": "train-size"}


@presets.register("accuracy-based-averaging", aliases=("abavg",))
class AccuracyBasedAveraging(Preset):
    """Averages weighted by each client model's accuracy on images of the server's own.

    Source: Xiao et al. (2021), "A novel server-side aggregation strategy for federated learning in
    non-IID situations".
    """

    values: ClassVar[Values] = {**_AVERAGES, "weighting": "accuracy", "server-data": "held-back"}


@presets.register("bayesian-admm", aliases=("bayes-admm", "ivon-admm"))
class BayesianAdmm(Preset):
    """IVON clients with duals, whose sum draws their mean posterior towards that of all data.

    As in partitioned variational inference, the posterior begins as the prior and an optimizer as
    the network does. The likelihood is cold: with τ = 1 an MLP learns slowly of digits. Published
    runs have τ from 0.001 to 0.1, ρ from 0.1 to 5, and damp duals by 0.1 or 0.001.

    Source: Möllenhoff et al. (2026), "Federated ADMM from Bayesian duality", Fig. 2, and its code.
    """

    values: ClassVar[Values] = {
        "pooling": "log-linear-pool",
        "weighting": "equal",
        "inference": "ivon",
        "likelihood-examples": "client",
        "optimizer": "ivon",
        "learning-rate": 0.4,
        "prior": "duals",
        "prior-scale": 1.0,
        "start": "initial-network",
        "server-optimizer": "bayesian-admm",
        "dual-damping": 0.1,
        "temperature": 0.01,
        "schedule": "constant",
    }


@presets.register("federated-averaging", aliases=("fedavg",))
class FederatedAveraging(Preset):
    """Averages of the clients' weights, which are points, with their shares of the examples.

    Source: McMahan et al. (2017), "Communication-efficient learning of deep networks from
    decentralized data", Algorithm 1.
    """

    values: ClassVar[Values] = {**_AVERAGES_BY_SIZE, "inference": "deterministic"}


@presets.register("federated-bayesian-ensemble", aliases=("fedbe",))
class FederatedBayesianEnsemble(Preset):
    """Federated averaging whose average learns from samples, itself and the clients' models.

    These predict held-back images of the server's; samples are of a Gaussian over the clients.

    Source: Chen and Chao (2021), "FedBE: Making Bayesian model ensemble applicable to federated
    learning", Algorithm 1 and section 5.1.
    """

    values: ClassVar[Values] = {
        **_AVERAGES_BY_SIZE,
        "refinement": "distillation",
        "sampler": "gaussian",
        "ensemble-samples": 10,
        "ensemble-average": True,
        "ensemble-clients": True,
        "distillation-optimizer": "swa",
        "student-augmentation": "crop-flip",
        "server-data": "held-back",
        "server-labels": False,
    }


@presets.register("federated-mutual-learning", aliases=("fml",))
class FederatedMutualLearning(Preset):
    """Federated averaging of memes that learn from personal models, and these from them.

    Source: Shen et al. (2020), "Federated mutual learning"; Yang et al. (2023), Eq. 2.5, and
    section 5 for the optimizer.
    """

    values: ClassVar[Values] = {
        **_AVERAGES_BY_SIZE,
        "personalization": "mutual-distillation",
        "optimizer": "stochastic-gradient-descent",
        "personal-optimizer": "stochastic-gradient-descent",
        "momentum": 0.9,
        "weight-decay": 5e-4,
        "learning-rate": 0.01,
        "personal-learning-rate": 0.01,
        "schedule": "constant",
    }


@presets.register("federated-personalization", aliases=("fedper",))
class FederatedPersonalization(Preset):
    """Averages of the layers that clients share; the last one is each client's own.

    Source: Arivazhagan et al. (2019), "Federated learning with personalization layers", Algorithms
    1 and 2, with one personalization layer.
    """

    values: ClassVar[Values] = {**_AVERAGES_BY_SIZE, "shared": "body", "evaluated-by": "clients"}


@presets.register("federated-proximal", aliases=("fedprox",))
class FederatedProximal(Preset):
    """Federated averaging whose clients are held near what they have received.

    Source: Li et al. (2020), "Federated optimization in heterogeneous networks", Algorithm 2.
    """

    values: ClassVar[Values] = {**_AVERAGES, "objective": "elbo+proximal"}


@presets.register("heterogeneous-bayesian", aliases=("hbfl",))
class HeterogeneousBayesian(Preset):
    """A log-linear pool of cold posteriors whose mean alone is sent to the clients.

    A client's copy of the global model, the meme, begins at the received mean with fresh variances
    and is fitted to the likelihood to the power 1/T, with no prior. Personal models learn from it.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem", Algorithm 1, Eqs. 3.12, 4.1 and 4.2, section 5.
    """

    values: ClassVar[Values] = {
        "pooling": "log-linear-pool",
        "weighting": "train-size",
        "broadcast": "mean",
        "start": "mean",
        "prior": "flat",
        "temperature": 1e-4,
        "evaluate-at": "mean",
        "optimizer": "adam",
        "weight-decay": 5e-4,
        "learning-rate": 1e-3,
        "personalization": "distillation",
        "personal-optimizer": "stochastic-gradient-descent",
        "momentum": 0.9,
        "personal-learning-rate": 0.01,
        "schedule": "constant",
    }


@presets.register("improved-variational-online-newton", aliases=("ivon", "fedivon"))
class ImprovedVariationalOnlineNewton(Preset):
    """A log-linear pool of posteriors whose precisions are estimates of the Hessian.

    Each client's likelihood counts as many examples as all clients have, so the pool by shares of
    the examples is the posterior of all data. The rate was measured with ResNet-8, ResNet-20 and
    the MLP. LeNet takes 0.1; other networks were not tried.

    Source: Pal et al. (2025), "FedIvon"; Shen et al. (2024), "Variational learning is effective for
    large deep networks".
    """

    values: ClassVar[Values] = {
        "pooling": "log-linear-pool",
        "weighting": "train-size",
        "inference": "ivon",
        "optimizer": "ivon",
        "learning-rate": 0.4,
        "prior-scale": 1.0,
        "schedule": "constant",
    }


@presets.register("local-training", aliases=("local",))
class LocalTraining(Preset):
    """Each client trains a model of its own on its own data, and the global one is not trained.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem", Table 4, "Independent"; section 5 for the optimizer.
    """

    values: ClassVar[Values] = {
        **_AVERAGES,
        "personalization": "alone",
        "personal-optimizer": "stochastic-gradient-descent",
        "momentum": 0.9,
        "weight-decay": 5e-4,
        "personal-learning-rate": 0.01,
    }


@presets.register("one-round-ensemble", aliases=("one-ensemble", "1-ensemble"))
class OneRoundEnsemble(Preset):
    """Clients train once, for long, and their models predict together.

    The ensemble's numbers are ``ensemble-accuracy`` and so on. Section B.1 tunes ``local-epochs``.

    Source: Chen and Chao (2021), FedBE, section 5.1, "Baselines" (1-Ensemble), and Table 8.
    """

    values: ClassVar[Values] = {
        **_AVERAGES_BY_SIZE,
        "predictive": "ensemble",
        "ensemble-samples": 0,
        "ensemble-average": False,
        "ensemble-clients": True,
        "rounds": 1,
        "local-epochs": 200,
    }


@presets.register("partitioned-variational-inference", aliases=("pvi",))
class PartitionedVariationalInference(Preset):
    """Clients keep factors of the posterior; cavities are their priors, and changes are added.

    As clients of networks are far from converged, changes are damped by 1 over their number. A
    floor under the variances would break the product of factors. The posterior begins as the prior
    N(0, I), and an optimizer as the network does: at the prior's means all units are the same.

    Source: Bui et al. (2018), "Partitioned variational inference", Algorithm 1; Ashman et al.
    (2022), "Partitioned variational inference: a framework for probabilistic federated learning".
    """

    values: ClassVar[Values] = {
        "pooling": "factor-changes",
        "prior": "cavity",
        "prior-scale": 1.0,
        "start": "initial-network",
        "damping": 0.0,
        "scale-floor": 0.0,
    }


@presets.register("private-federated-averaging", aliases=("dp-fedavg",))
class PrivateFederatedAveraging(Preset):
    """Averages of clipped updates, all of equal weight, to which the server adds Gaussian noise.

    Groups normalise, as moving statistics of batches would tell of a client's data.

    Source: McMahan et al. (2018), "Learning differentially private recurrent language models",
    Algorithm 1, with a fixed denominator.
    """

    values: ClassVar[Values] = {
        "pooling": "log-variance-averaging",
        "weighting": "equal",
        "outgoing": "clip+noise",
        "noise-at": "server",
        "round-retries": 0,
        "normalization": "group",
    }


@presets.register("stochastic-controlled-averaging", aliases=("scaffold",))
class Scaffold(Preset):
    """Averages of clients whose steps are corrected by control variates, all of equal weight.

    Source: Karimireddy et al. (2020), "SCAFFOLD: Stochastic controlled averaging for federated
    learning", Algorithm 1; option II, plain steps.
    """

    values: ClassVar[Values] = {
        **_AVERAGES,
        "weighting": "equal",
        "correction": "scaffold",
        "optimizer": "stochastic-gradient-descent",
        "momentum": 0.0,
        "learning-rate": 0.01,
    }


@presets.register("server-adam", aliases=("fedadam",))
class ServerAdam(Preset):
    """Federated averaging whose server makes the steps of Adam.

    Source: Reddi et al. (2021), "Adaptive federated optimization", Algorithm 2.
    """

    values: ClassVar[Values] = {**_AVERAGES, "server-optimizer": "adam"}


@presets.register("server-momentum", aliases=("fedavgm",))
class ServerMomentum(Preset):
    """Federated averaging whose server steps along a velocity that keeps 0.9 of itself.

    Source: Hsu et al. (2019), "Measuring the effects of non-identical data distribution for
    federated visual classification", section 4.3.
    """

    values: ClassVar[Values] = {**_AVERAGES, "server-optimizer": "momentum", "server-momentum": 0.9}


@presets.register("vanilla-distillation", aliases=("v-distillation",))
class VanillaDistillation(Preset):
    """Federated averaging whose average learns from the clients' models alone, without SWA.

    Source: Chen and Chao (2021), FedBE, section 5.1, "Baselines"; highly similar to Lin et al.
    (2020), "Ensemble distillation for robust model fusion in federated learning".
    """

    values: ClassVar[Values] = {
        **_AVERAGES_BY_SIZE,
        "refinement": "distillation",
        "ensemble-samples": 0,
        "ensemble-average": False,
        "ensemble-clients": True,
        "distillation-optimizer": "sgd",
        "student-augmentation": "crop-flip",
        "server-data": "held-back",
        "server-labels": False,
    }
