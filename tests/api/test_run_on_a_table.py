"""A run from a data frame to predictions, its clients the sites: what other tests show in parts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bfl
from bfl.data.datasets import Reading, load_dataset
from bfl.experiments.results.run_folder import RunFolder


@pytest.mark.usefixtures("undrawn_figures")
def test_a_data_frame_by_site_becomes_predictions(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    dose = generator.normal(5.0, 2.0, 80)
    frame = pd.DataFrame(
        {
            "site": np.repeat(["north", "south"], [50, 30]),
            "dose": dose,
            "kind": generator.choice(["a", "b"], 80),
            "outcome": np.where(dose > 5.0, "well", "ill"),
        }
    )
    result = bfl.run(
        data=frame,
        target="outcome",
        partition="column:site",
        evaluated_by="clients",
        model="mlp",
        inference="deterministic",
        strategy="nwa",
        rounds=1,
        closing="none",
        local_epochs=40,
        batch_size=8,
        backend="serial",
        output_dir=str(tmp_path),
    )
    assert result.configuration["clients"] == 2  # the sites
    assert result.metrics["accuracy"] > 0.8
    # What is doubtful of its data stays with it: the sites that are an input.
    (site,) = RunFolder(result.folder).warnings()
    assert 'columns-left-out="site"' in site
    partition = RunFolder(result.folder).read_json("run.json:partition")
    assert partition["names"] == ["north", "south"]
    clients = RunFolder(result.folder).read_json("run.json:clients")
    assert sum(row["test-examples"] for row in clients.values()) == 16
    # Rows as a person has them, their columns in any order, and the target among them.
    predictions = result.predict(frame[frame.columns[::-1]])
    assert np.mean(np.array(predictions.predicted_names) == frame["outcome"]) > 0.8
    word = result.configuration["dataset"]
    own = result.evaluate(word)
    assert (own["metrics"]["accuracy"], own["examples"]) == (result.metrics["accuracy"], 16)
    # All rows of another file count, but not of a copy: some were for training.
    copy, other = tmp_path / "copy.csv", tmp_path / "other.csv"
    frame.to_csv(copy, index=False)
    assert result.evaluate(f"table:{copy}")["examples"] == 16
    frame[::-1].to_csv(other, index=False)
    found = result.evaluate(f"table:{other}")
    right = np.array(predictions.predicted_names) == frame["outcome"]
    assert (found["metrics"]["accuracy"], found["examples"]) == (right.mean(), 80)
    for in_memory in (result.evaluate(frame), result.evaluate(frame, list(frame["outcome"]))):
        assert in_memory["metrics"] == pytest.approx(found["metrics"], rel=1e-6)  # another order
    # A node's few rows, with what the run's network.json says, are encoded as all were.
    site = frame[:5].rename(columns={"outcome": "target"})
    site.to_csv(tmp_path / "node.csv", index=False)
    known = (Path(result.folder) / "network.json").read_text()
    node = load_dataset(f"table:{tmp_path / 'node.csv'}", "", Reading(table_columns=known))
    assert not node.numbered_here
    assert node.class_names == result.class_names
    # A kind that training had none of is taken, and said.
    strange = frame.assign(kind=["c"] * 3 + ["a"] * 77)
    strange.to_csv(tmp_path / "strange.csv", index=False)
    assert sum("kind 'c' is unseen" in each for each in result.predict(strange).warnings) == 3
    with pytest.warns(UserWarning, match=r"strange\.csv: .*'kind' holds 'c' in 3 of 80 rows"):
        result.evaluate(f"table:{tmp_path / 'strange.csv'}")
