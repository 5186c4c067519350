"""`trainer/events.py`, trackers of experiments: the figures of the events, by name; a missing package is said."""

import sys

import pytest
from run_helpers import of_kind, run

from training.errors import InputError
from training.trainer.config import REPORTERS
from training.trainer.events import TRACKERS, figures_of


def test_each_name_has_its_tracker_of_the_numbers_of_train_and_eval_events(config):
    assert set(TRACKERS) == set(REPORTERS)
    event = {
        "t": 1.0,
        "step": 3,
        "kind": "eval",
        "spearman": 0.5,
        "loss": None,
        "best": True,
        "seconds_left": 2.0,
    }
    assert figures_of({**event, "by_dimension": {"16": 0.25}}) == {
        "eval/spearman": 0.5,
        "eval/by_dimension/16": 0.25,
    }

    with pytest.raises(InputError, match="writes into the run's folder"):
        run(config.replace(report_to=("tensorboard",)))


@pytest.mark.parametrize("package", REPORTERS)
def test_a_missing_package_is_said_with_what_to_install(config, tmp_path, monkeypatch, package):
    for name in (package, "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        InputError, match=rf'needs the package {package}: .*pip install "\.\[{package}\]"'
    ):
        run(config.replace(report_to=(package,)), tmp_path / "run")


def test_tensorboard_has_the_figures_of_the_events_also_after_resuming(config, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    config = config.replace(report_to=("tensorboard",), matryoshka_dims=(16,))
    steps: list[int] = []
    stopped, before = run(config, folder, should_stop=lambda: len(steps) > 6 or steps.append(0))
    assert stopped.status == "stopped"
    finished, after = run(config, folder, resume=True)
    assert finished.status == "finished"
    events = before + after
    written = EventAccumulator(str(folder / "tensorboard"))
    written.Reload()
    losses = {each.step: each.value for each in written.Scalars("train/loss")}
    assert losses == pytest.approx(
        {event["step"]: event["loss"] for event in of_kind(events, "train")}, rel=1e-6
    )
    spearman = {each.step: each.value for each in written.Scalars("eval/by_dimension/16")}
    expected = {event["step"]: event["by_dimension"]["16"] for event in of_kind(events, "eval")}
    assert spearman == pytest.approx(expected, rel=1e-6)


def test_trackio_has_the_figures_of_the_events(config, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    folder = tmp_path / f"run-{tmp_path.name}"
    result, events = run(config.replace(report_to=("trackio",)), folder)
    assert result.status == "finished"
    assert capfd.readouterr().out == ""
    rows = SQLiteStorage.get_logs("sbert-lab", folder.name)
    values = {row["step"]: row["eval/spearman"] for row in rows if "eval/spearman" in row}
    assert values == pytest.approx(
        {event["step"]: event["spearman"] for event in of_kind(events, "eval")}
    )
