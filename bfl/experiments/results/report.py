"""Reports: all results of a run as one HTML file, which needs no network."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bfl.closing import heads
from bfl.evaluation.metrics import higher_is_better, metrics, scores
from bfl.evaluation.regression import ERROR, SQUARED
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results import clients, environment, figures, monitoring, run_folder, summary
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import ABSENT, NAMES, tabulated, three_digits
from bfl.federation import client_metrics as of_client
from bfl.texts import counted, few

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

TEMPLATE = files("bfl") / "experiments" / "results" / "report.html"
GLOSSARY = files("bfl") / "commands" / "glossary.md"

SECTIONS = {
    "Calibration": ["reliability-diagram", "confusion-matrix", "predicted-numbers"],
    "Uncertainty": ["retention-curves", "familiarity", "member-confidences"],
    "Foreign images and shift": ["foreign-images"],
    "Clients": ["partition", "client-curves"],
    "Learning": ["learning-curve", "posterior-spread"],
}
"""The sections of a run's report with their figures."""

ACCURACY, NLL, ECE = "accuracy", "negative-log-likelihood", "expected-calibration-error"
COVERAGE, RANKED = "interval-coverage", "continuous-ranked-probability-score"
OF_MODELS = {
    "global-accuracy": "federated model's accuracy",
    f"global-{ERROR}": "federated model's RMSE",
    f"global-{ECE}": "federated model's ECE",
    f"last-{of_client.MEME}accuracy": "accuracy after its own training",
    f"last-{of_client.PERSONAL}accuracy": "personal model's accuracy",
}
WEIGHT = "weight in the last pool"

FOLDERS = re.compile(r"""(?<![\w./])/(?:[^\n/:,;'"]+/)+""")
"""Folders in front of a file's name, which a page that others get does not show."""

WIDE = 6.0
"""A figure of more inches has its caption beside it where the page has room."""

FEW_EXAMPLES = 50
"""A client with fewer training examples is named among what to beware."""

WORDS = ("aleatoric", "closing round", "epistemic", "familiarity", "held back", "oracle")
"""Words of the page, besides its numbers, that the glossary explains."""

NOT_SHOWN = ("output-dir", "name", "resume", "data-dir", "plugins", "clients", "table-columns")
"""Keys that say where a run was made, what its heading says, or what columns hold."""


@dataclass
class Section:
    """A section of a report: a title over texts, a list, figures and tables, for the template."""

    title: str
    texts: Sequence[str] = ()
    items: Sequence[str] = ()
    figures: list[dict[str, str]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)

    def draw(self, name: str, figure: MatplotlibFigure, caption: str) -> None:
        """Add a figure."""
        wide = "wide" if figure.get_figwidth() > WIDE else "plain"
        drawn = {"name": name, "svg": figures.style.svg(figure, name), "caption": caption}
        self.figures.append({**drawn, "shape": wide})

    def tabulate(
        self, caption: str, rows: Sequence[Mapping[str, Any]], *, folded: bool = False
    ) -> Section:
        """Add a table of mappings, whose keys are the columns; return the section."""
        columns, texts = tabulated(rows, three_digits)
        added = {"caption": caption, "columns": columns, "rows": texts, "folded": folded}
        self.tables.append(added)
        return self


@cache
def _glossary() -> dict[str, str]:
    registered = (metrics, uncertainties)
    found = {n: registry.get(n).summary() for registry in registered for n in registry.names()}
    entries = re.findall(
        r"^- (.*?): (.*?)(?=[.;]\s|[.;]$|\Z)", GLOSSARY.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    for words, sentence in entries:
        meaning = " ".join(re.sub(r"[`*]", "", sentence).split())
        meaning = f"{meaning[:1].upper()}{meaning[1:]}."
        found |= {word.lower(): meaning for word in re.findall(r"[`*]([^`*]+)[`*]", words)}
    return found


@cache
def explained(word: str) -> str:
    """Return the glossary's sentence on a metric or a word of the report; empty: it has none."""
    keys = {called: name for name, called in NAMES.items()}
    word = keys.get(word, word.partition(":")[0].lower())
    for known in (word, word.replace(" ", "-")):
        for entry, meaning in _glossary().items():
            pattern = re.sub("name|metric", ".+", re.escape(entry)) if "-" in entry else entry
            if known == entry or re.fullmatch(pattern, known):
                return meaning
    return ""


def run_report(folder: RunFolder) -> str:
    """Return the report of a run as one HTML page; DataError for a run that is not finished."""
    found = _Run(folder)
    cards, words = _cards(found), dict[str, list[str]]()
    for word in sorted({*found.numbers, *(card["name"] for card in cards), *WORDS}):
        if meaning := explained(word):
            words.setdefault(meaning, []).append(word)
    return page(
        title=folder.path.name,
        about=figures.style.run_title(folder).splitlines(),
        times=environment.describe_times([found.made]),
        run=found,
        three_digits=three_digits,
        summary=[_how_good(found), _how_sure(found), *found.verdict, _what_to_beware(found)],
        tiles=cards,
        tested=found.tested,
        words={meaning: few(same, 3) for meaning, same in words.items()},
        sections=[*_sections(found), *_origin(found)],
    )


class _Run:
    """The content of a run's folder that several parts of its report take."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.numbers, self.config = folder, folder.metrics(), folder.config()
        self.rounds, self.names = folder.rounds(), folder.client_names()
        self.partition = folder.read_json(run_folder.PARTITION, {})
        self.lost = clients.describe_left_out(self.rounds, self.names)
        warned = (text for text in folder.warnings() if text not in self.lost)
        if not monitoring.collapsed_at_the_end(folder):  # it may have been so for a while
            warned = (text for text in warned if monitoring.COLLAPSED not in text)
        self.compared = folder.read_json(run_folder.BASELINES, {})
        beside = (folder.path.with_name(f"{folder.path.name}-{n}") for n in ("local-0", "central"))
        self.unfinished = not self.compared and any(other.is_dir() for other in beside)
        self.verdict = [clients.baseline_verdict(self.compared)] if self.compared else []
        self.owners, self.counts = summary.owners_of(folder), summary.counts_by_client(folder)
        self.made = folder.read_json(run_folder.ENVIRONMENT, {})
        self.columns = folder.read_json(run_folder.NETWORK, {}).get("columns") or ()
        self.held_back = 0
        if folder.holds(f"{run_folder.CLOSING}:{heads.HELD_BACK}"):
            with folder.reading_arrays(run_folder.CLOSING) as closing:
                self.held_back = int(closing[heads.HELD_BACK])
        self.warnings = [*self.lost, *(FOLDERS.sub("", text) for text in warned)]
        self.classes = folder.predictions() if folder.holds(run_folder.PREDICTED_CLASSES) else None
        self.tested, values = 0, dict[str, Any]()
        if self.classes is not None:
            self.tested = self.classes[1].size
            values = {NLL: scores.NegativeLogLikelihood().values(*self.classes)}
        elif folder.holds(run_folder.PREDICTED_NUMBERS):
            predicted, targets = folder.predicted_numbers()
            self.tested = targets.size
            values = {name: of_each for name, (of_each, _) in predicted.values(targets).items()}
        several, root = values if self.tested > 1 else {}, math.sqrt(self.tested)
        self.errors = {name: float(each.std(ddof=1)) / root for name, each in several.items()}
        if squared := self.errors.get(SQUARED):  # by the delta method
            self.errors[ERROR] = squared / (2.0 * self.numbers[ERROR])

    def name_of(self, client: int) -> str:
        """Return a client's name, or its number."""
        return self.names[client] if client < len(self.names) else f"client {client}"

    def shares_of_classes(self) -> Iterator[tuple[str, int, int]]:
        """Yield each class's name, its number of test examples, and how many are right."""
        if self.classes is None:
            return
        predictions, labels = self.classes
        names = self.folder.class_names()
        for label in range(predictions.classes):
            of_class = labels == label
            right = int((predictions.predicted[of_class] == label).sum())
            name = names[label] if len(names) == predictions.classes else str(label)
            yield few([name[:24]]), int(of_class.sum()), right


def page(**content: Any) -> str:
    """Return a page with a ``title``, lines ``about`` it, ``sections``, and ``tiles`` if any."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=False, keep_trailing_newline=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(**content, explained=explained)


def _interval(share: float, count: int) -> str:
    low, high = (three_digits(float(bound)) for bound in scores.wilson_interval(share, count))
    return f"95 %: {low} to {high}"


def _how_good(run: _Run) -> str:
    numbers = run.numbers
    if run.classes is not None:
        interval, classes = _interval(numbers[ACCURACY], run.tested), [*run.shares_of_classes()]
        usual, count, _ = max(classes, key=lambda c: c[1])
        worst = min((c for c in classes if c[1]), key=lambda c: c[2] / c[1])
        return (
            f"The model is right for {sum(c[2] for c in classes):,} of {run.tested:,} test "
            f"examples ({interval}); always to say “{usual}” would be right for {count:,}. "
            f"Of its worst class, “{worst[0]}”, it is right for {worst[2]} of {worst[1]}."
        )
    if ERROR in numbers:
        known = f" ± {three_digits(run.errors[ERROR])}" if ERROR in run.errors else ""
        return (
            f"The predicted numbers are off by {three_digits(numbers[ERROR])}{known} "
            f"(root-mean-squared error{f', {run.tested:,} test examples' * bool(run.tested)})."
        )
    mean = numbers.get("clients-global-accuracy")
    own = f" On the clients' own test data, its accuracy is {three_digits(mean)}." if mean else ""
    return f"The server has evaluated no predictions.{own}"


def _how_sure(run: _Run) -> str:
    if run.classes is not None:
        predictions, labels = run.classes
        wrong = predictions.predicted != labels
        confidence, accuracy = map(three_digits, (predictions.confidence.mean(), 1 - wrong.mean()))
        calibrated = f"On average it is {confidence} sure, and right for {accuracy}"
        if not wrong.any() or wrong.all():
            return f"{calibrated}."
        area = summary.auroc(wrong, uncertainties.create("predictive-entropy").measure(predictions))
        return (
            f"{calibrated}. Of a right and a wrong prediction, it is less sure of the wrong one in "
            f"{three_digits(area)} of all pairs, by entropy (chance: 0.5){_held_back(run)}."
        )
    if (coverage := run.numbers.get(COVERAGE)) is not None:
        known = f" ({_interval(coverage, run.tested)})" if run.tested else ""
        hits = f"Its intervals of 90 % hold {three_digits(coverage)} of the true numbers{known}"
        return f"{hits}{_held_back(run)}."
    return "Nothing is known of its calibration on test data."


def _held_back(run: _Run) -> str:
    if heads.BEFORE not in run.numbers:
        return ""
    before, after = (three_digits(run.numbers[name]) for name in (heads.BEFORE, heads.AFTER))
    return f". The closing round changes the NLL of held-back examples from {before} to {after}"


def _what_to_beware(run: _Run) -> list[str]:
    found = list(run.lost)
    trained = enumerate(run.partition.get("num_examples", ()))
    scarce = [f"{run.name_of(at)} ({n})" for at, n in trained if n is not None and n < FEW_EXAMPLES]
    if scarce:
        found.append(f"few training examples: {few(scarce, 3)}")
    found += monitoring.weaknesses(run.folder)
    if more := len(run.warnings) - len(run.lost):
        found.append(f"{counted(more, 'warning')} below")
    return found


def _cards(run: _Run) -> list[dict[str, Any]]:
    numbers, cards = run.numbers, list[dict[str, Any]]()

    def add(name: str, value: float, *notes: str) -> None:
        cards.append({"name": name, "value": three_digits(value), "notes": [n for n in notes if n]})

    def add_share(name: str, count: int, right: int, *notes: str) -> None:
        add(name, right / count, _interval(right / count, count), *notes)

    for name in (ACCURACY, ERROR, NLL, ECE, RANKED, COVERAGE):
        if (value := numbers.get(name)) is None:
            continue
        before = numbers.get(f"{summary.BEFORE_CLOSING}{name}")
        spread = f"± {three_digits(run.errors[name])}" if name in run.errors else ""
        if name in (ACCURACY, COVERAGE) and run.tested:
            spread = _interval(value, run.tested)
        closed = f"{three_digits(before)} before the closing round" if before is not None else ""
        add(NAMES.get(name, name.replace("-", " ")), value, spread, closed)
    classes = list(run.shares_of_classes())
    if len(classes) == 2 and run.classes is not None and all(count for _, count, _ in classes):
        (negative, n0, right0), (positive, n1, right1) = classes
        add_share(f"sensitivity: {positive}", n1, right1, "above a probability of 0.5")
        add_share(f"specificity: {negative}", n0, right0, "up to a probability of 0.5")
        predictions, labels = run.classes
        area = summary.auroc(labels == 1, predictions.mean_probability[:, 1])
        add("AUROC", area, _area_interval(area, n1, n0))
    elif measured := [c for c in classes if c[1]]:
        name, count, right = min(measured, key=lambda c: c[2] / c[1])
        add_share(f"worst class: {name}", count, right)
    for name, source in run.folder.read_json(run_folder.FOREIGN, {"sources": {}})[
        "sources"
    ].items():
        found = numbers.get(f"{summary.OF_FOREIGN}{name}-auroc")
        if found is not None and run.tested:
            ends = _area_interval(found, int(source["examples"]), run.tested)
            add(f"AUROC: {name} images", found, ends, "told from test images")
    return cards


def _area_interval(area: float, positives: int, negatives: int) -> str:
    # Hanley and McNeil (1982), Eqs. 1 and 2.
    both = (positives - 1) * (area / (2 - area) - area**2)
    both += (negatives - 1) * (2 * area**2 / (1 + area) - area**2)
    error = scores.Z * math.sqrt(max(0.0, area * (1 - area) + both) / (positives * negatives))
    ends = (three_digits(min(1.0, max(0.0, area + sign * error))) for sign in (-1, 1))
    return f"95 %: {' to '.join(ends)}"


def _sections(run: _Run) -> Iterator[Section]:
    folder = run.folder
    if run.warnings:
        yield Section("Warnings", items=run.warnings)
    if compared := run.compared:
        section = Section("Is federating worth it?", run.verdict)
        for caption, rows in clients.baseline_tables(compared).items():
            section.tabulate(caption, rows)
        yield section
    for title, names in SECTIONS.items():
        section = Section(title)
        for name in names:
            if (drawn := figures.draw(name, folder, titled=False)) is not None:
                section.draw(name, drawn, figures.caption_of(name))
        if title == "Foreign images and shift":
            rows = [
                {"corruption": name, "strength": at, **dict(zip(of_each, values, strict=True))}
                for name, of_each in folder.read_json(run_folder.CORRUPTIONS, {}).items()
                for at, values in enumerate(zip(*of_each.values(), strict=True))
            ]
            if rows:
                section.tabulate("Corrupted test images; strength 0 is unchanged", rows)
        if title == "Clients" and (rows := _clients(run)):
            by = run.config.get("site-column") or "client"
            section.tabulate(f"By {by}", rows, folded=len(rows) > 20)
        if title == "Learning" and folder.holds(run_folder.LEARNT):
            section.texts = [str(folder.read_json(run_folder.LEARNT)["sentence"])]
        if section.texts or section.figures or section.tables:
            yield section


def _clients(run: _Run) -> list[dict[str, Any]]:
    """Return a row a client: its counts, how models do on its own test data, and what was lost."""
    measured = run.folder.read_json(run_folder.CLIENTS, {})
    rows: dict[int, dict[str, Any]] = {}
    lost: dict[int, dict[str, list[int]]] = {}
    entries: dict[int, list[dict[str, Any]]] = {}
    for record in run.rounds:
        for entry in record.get(run_folder.PER_CLIENT, ()):
            entries.setdefault(int(entry["client"]), []).append(entry)
        for entry in record.get(clients.CLIENTS_LEFT_OUT, ()):
            by_reason = lost.setdefault(int(entry["client"]), {})
            by_reason.setdefault(str(entry["reason"]), []).append(record["round"])
    trained = run.partition.get("num_examples", ())
    last_round = (run.rounds or [{}])[-1].get(run_folder.PER_CLIENT, ())
    weights = {int(entry["client"]): entry.get("weight") for entry in last_round}
    for client in sorted({*entries, *lost, *map(int, measured), *range(len(trained))}):
        own, rounds = measured.get(str(client), {}), entries.get(client, [])
        known = trained[client] if client < len(trained) else rounds and rounds[-1]["num-examples"]
        row = rows[client] = {"client": run.name_of(client), "training examples": known or None}
        # A node with test data of its own has measured its model on them while it trained.
        of_node: Mapping[str, Any] = next(
            (e for e in reversed(rounds) if of_client.TEST_ACCURACY in e), {}
        )
        count = own.get(of_client.TEST_EXAMPLES) or of_node.get(of_client.TEST_EXAMPLES)
        row["test examples"] = count and int(count)
        for name, called in {
            **OF_MODELS,
            of_client.TEST_ACCURACY: OF_MODELS[f"last-{of_client.MEME}accuracy"],
        }.items():
            value = own.get(name, of_node.get(name))
            if value is None or (name.endswith(ECE) and run.owners is not None):
                continue
            shown = three_digits(value)
            if count and name.endswith(ACCURACY):
                ends = _interval(value, int(count)).removeprefix("95 %: ")
                shown = f"{shown} ({ends})"
            row[called] = shown
        row |= _of_classes(run, client) if client in run.counts else {}
        reasons = [f"{clients.name_rounds(at)}: {why}" for why, at in lost.get(client, {}).items()]
        row |= {"rounds": len(rounds), "lost": "; ".join(reasons) or None}
        row[WEIGHT] = weights.get(client)
    known_of = {name for row in rows.values() for name, value in row.items() if value is not None}
    last = ("rounds", "lost", WEIGHT)
    columns = sorted(dict.fromkeys(n for row in rows.values() for n in row), key=last.__contains__)
    return [{n: row.get(n) for n in columns if n in known_of} for row in rows.values()]


def _of_classes(run: _Run, client: int) -> dict[str, Any]:
    """Return what the federated model's accuracy on a client's own test examples hides."""
    found: dict[str, Any] = {}
    counts, right = run.counts[client]
    names = run.folder.class_names() or range(len(counts))
    if run.classes is not None and run.owners is not None and (run.owners == client).any():
        (predictions, labels), own = run.classes, run.owners == client
        wrong, sure = predictions.predicted != labels, predictions.confidence >= monitoring.SURE
        those = f"wrong, of a confidence from {monitoring.SURE} on"
        found[those] = f"{(wrong & sure & own).sum()} of {(sure & own).sum()}"
        of_two = f"mean probability − share of “{names[1]}”"
        gap, low, high = scores.gap_of(predictions, labels, own)
        name = of_two if len(counts) == 2 else "confidence − accuracy"
        found[name] = f"{gap:+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")
    found["always the most frequent class"] = counts.max() / counts.sum()
    if counts.max() == counts.sum():
        only = f"all are “{names[int(counts.argmax())]}”"
        found["always the most frequent class"] = f"{only}: accuracy compares nothing"
    if len(counts) == 2:
        for name, label in (("sensitivity", 1), ("specificity", 0)):
            found[name] = f"{right[label]} of {counts[label]}"
    return found


def _origin(run: _Run) -> Iterator[Section]:
    better = {True: "higher", False: "lower", None: ""}
    rows: list[dict[str, Any]] = []
    for name, value in run.numbers.items():
        side = better[higher_is_better(name.removeprefix(summary.BEFORE_CLOSING))]
        rows.append({"metric": name, "value": value, "better": side})
    yield Section("Metrics").tabulate(f"All {len(rows)} final numbers", rows, folded=True)
    last, given = (run.rounds or [{}])[-1], run.folder.read_json(run_folder.GIVEN, {})
    tables: dict[str, Mapping[str, Any]] = {
        "The run": {
            "rounds": len(run.rounds),
            "seconds of rounds": f"{math.fsum(entry['seconds'] for entry in run.rounds):.1f}",
            "posterior SHA-256": last.get("posterior-sha256", ABSENT),
        },
        "Settings other than the defaults": {
            key: value for key, value in given.items() if key not in NOT_SHOWN
        },
        "Versions and machine": run.folder.read_json(run_folder.ENVIRONMENT, {}),
    }
    section = Section("What was run")
    for caption, values in tables.items():
        shown = {key: value for key, value in values.items() if value not in (None, [], "")}
        if lines := [{"": key, "value": FOLDERS.sub("", str(shown[key]))} for key in shown]:
            section.tabulate(caption, lines, folded=caption != "The run")
    yield section
