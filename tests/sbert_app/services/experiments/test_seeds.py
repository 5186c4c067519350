"""`experiments/experiment.py`: one config with several seeds, what may be typed, and the runs that come of it."""

import pytest

from sbert_app.services.experiments.experiment import (
    SEEDS,
    Experiments,
    is_experiment,
    new_seeds,
    parse_seeds,
)
from sbert_app.services.experiments.groups import matches, run_groups
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.trainer.config import RunConfig


def test_a_list_of_seeds_is_read_or_refused():
    typed = {"0-4": (0, 1, 2, 3, 4), "7": (7,), 3: (3,), "2, 0–1,2": (2, 0, 1), " 9 - 10 ": (9, 10)}
    assert {text: parse_seeds(text) for text in typed} == typed
    for text in ("", "a", "1-", "-3", "4-0", "0-100", "1.5", "0-4 5", "0-9999999999"):
        with pytest.raises(InputError, match="such as 0-4"):
            parse_seeds(text)


def test_each_seed_is_a_run_and_all_are_one_group(tmp_path):
    (tmp_path / "pairs.csv").write_text(
        "sentence1,sentence2,score\n" + "A cat sleeps.,A dog barks.,1.5\n" * 4
    )
    store = RunStore(tmp_path / "home")
    jobs = RunQueue(store)
    jobs.starts_workers = False
    pairs = str(tmp_path / "pairs.csv")
    config = RunConfig(
        "regression",
        base="scratch:1x32",
        train_data=pairs,
        eval_data=pairs,
        name="mine",
        max_steps=2,
    )
    experiments = Experiments(jobs)
    found = experiments.start(new_seeds(config, "0-2"))
    assert (found.record.kind, found.seeds, found.state) == (SEEDS, [0, 1, 2], "running")
    assert [run.name for run in found.runs] == ["mine, seed 0", "mine, seed 1", "mine, seed 2"]
    assert [run.config.replace(name="mine", seed=0) for run in found.runs] == [config] * 3
    group = run_groups(store.home)[found.runs[1].id]
    assert (group.label, group.differ_in_seed) == ("mine, seeds 0-2", True)
    assert all(matches(run, group, group.name) for run in found.runs)
    assert is_experiment(store.home, found.id)
    assert not is_experiment(store.home, found.runs[0].id)
    assert found.summary("best") is None  # none is finished
