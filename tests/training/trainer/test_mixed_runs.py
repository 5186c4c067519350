"""`trainer/batches.py`: several data sets with an objective each, in the orders of sentence-transformers."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from run_helpers import Events, curve, of_kind, run, stop_and_resume, stop_at
from torch.utils.data import BatchSampler, ConcatDataset, SequentialSampler

from training.errors import InputError
from training.objectives.pairs import CoSENT
from training.objectives.ranking import Triplet
from training.trainer.batches import MixedBatches
from training.trainer.config import PROPORTIONAL, ROUND_ROBIN, Part, RunConfig
from training.trainer.train import train
from training.trainer.training_model import Loss

sampler = pytest.importorskip("sentence_transformers.base.sampler")
SIZES = (7, 3, 5)  # batches of each part
THEIRS = {"proportional": "ProportionalBatchSampler", "round-robin": "RoundRobinBatchSampler"}


@pytest.fixture
def mixed(config, tmp_path) -> RunConfig:
    """Scored pairs by cosent, and twelve pairs that belong together by mnrl: three batches of four."""
    file = tmp_path / "together.csv"
    animals = ("cat", "dog", "cow", "hen", "pig", "rat", "ape", "bee", "ant", "fly", "owl", "fox")
    rows = [f"The {animal} sleeps.,A {animal} is asleep." for animal in animals]
    file.write_text("\n".join(["anchor,positive", *rows]) + "\n")
    return config.replace(
        train_data=f"{config.train_data}=cosent+{file}=mnrl", mix="round-robin", batch_size=4
    )


def batches(mix: str, seed: int = 0) -> MixedBatches:
    samplers = (SimpleNamespace(steps_per_epoch=size) for size in SIZES)
    parts = [SimpleNamespace(sampler=of_part, used=set(), columns=[]) for of_part in samplers]
    return MixedBatches(parts, RunConfig("cosent", mix=mix, seed=seed))


@pytest.mark.parametrize("mix", [PROPORTIONAL, ROUND_ROBIN])
def test_an_epoch_of_mixed_data_has_the_batches_of_the_referee(mix):
    ours = batches(mix)
    rows = [range(size) for size in SIZES]
    samplers = [BatchSampler(SequentialSampler(part), 1, drop_last=False) for part in rows]
    theirs = getattr(sampler, THEIRS[mix])(ConcatDataset(rows), samplers, torch.Generator(), 0)
    offsets = [0, SIZES[0], SIZES[0] + SIZES[1], sum(SIZES)]
    drawn = [next(part for part in range(3) if row < offsets[part + 1]) for [row] in theirs]
    parts = [ours.part(step)[0] for step in range(ours.steps_per_epoch)]
    assert ours.steps_per_epoch == len(theirs) and Counter(parts) == Counter(drawn)
    if mix == "round-robin":
        assert parts == drawn
    else:
        assert parts != sorted(parts) and parts != [
            batches(mix, seed=1).part(step)[0] for step in range(len(parts))
        ]


@pytest.mark.parametrize("mix", [PROPORTIONAL, ROUND_ROBIN])
def test_each_part_takes_its_own_steps_one_after_the_other_over_all_epochs(mix):
    ours = batches(mix)
    taken: dict[int, list[int]] = {part: [] for part in range(3)}
    for step in range(3 * ours.steps_per_epoch):
        part, own_step = ours.part(step)
        taken[part].append(own_step)
    assert all(steps == list(range(len(steps))) for steps in taken.values())
    assert batches(mix).part(20) == ours.part(20)  # without those before it


def test_the_loss_of_a_batch_is_that_of_its_parts_objective():
    vectors = list(torch.randn(3, 4, 8))
    gold = torch.tensor([0.1, 0.9, 0.4, 0.6])
    loss = Loss([CoSENT(), Triplet()])
    assert loss(vectors[:2], gold) == CoSENT()(vectors[:2], gold)
    assert loss(vectors, None, 1) == Triplet()(vectors)


def test_events_and_card_tell_which_objective_learned_which_data(mixed, tmp_path):
    result, events = run(mixed, tmp_path / "run")
    # Of the first objective that the dev data fits.
    assert result.status == "finished" and result.final["loss"] > 0
    steps = [list(event["loss_by_data"]) for event in of_kind(events, "train")]
    assert steps[:4] == [["pairs.tsv=cosent"], ["together.csv=mnrl"]] * 2
    first = of_kind(events, "train")[0]
    assert first["loss"] == first["loss_by_data"]["pairs.tsv=cosent"]
    running = next(event for event in events if event.get("state") == "running")
    assert running["rows"] == 162 + 12
    assert any(
        note.startswith("together.csv, by mnrl: 3 batches in an epoch") for note in running["notes"]
    )
    card = (tmp_path / "run/model/README.md").read_text()
    assert (
        "cosent: log" in card
        and "mnrl: −log" in card
        and "together.csv, 12 pairs" in card
        and "round-robin" in card
    )


def test_a_stopped_run_resumes_to_the_same_curve(mixed, tmp_path):
    assert curve(stop_and_resume(mixed, tmp_path / "parts", 7)) == curve(run(mixed)[1])


def test_weights_of_two_classifiers_are_trained_and_saved_apart(config, tmp_path):
    data = "+".join([f"{config.train_data}=classification"] * 2)
    events: Events = []
    train(
        config.replace(train_data=data),
        events.append,
        tmp_path / "run",
        should_stop=stop_at(4, events),
    )
    from safetensors import safe_open

    with safe_open(tmp_path / "run/checkpoint/weights.safetensors", "pt") as file:
        names = {name for name in file.keys() if "classifier" in name}  # noqa: SIM118 - it is no dictionary
    assert names == {
        f"objective.{part}classifier.{each}"
        for part in ("", "part1_")
        for each in ("weight", "bias")
    }


def test_a_config_lists_its_parts_with_their_objectives(config):
    mixed = RunConfig(train_data=["stsb:train=cosent", "a.csv?encoding=koi8-r=mnrl", "b.csv=mnrl"])
    assert mixed.objective == "cosent"
    assert mixed.parts == (
        Part("stsb:train", "cosent"),
        Part("a.csv?encoding=koi8-r", "mnrl"),
        Part("b.csv", "mnrl"),
    )
    parts = RunConfig("mnrl", train_data="snli + all-nli=cosent").parts
    assert parts == (Part("snli", "mnrl"), Part("all-nli", "cosent"))
    assert RunConfig("mnrl", train_data="snli+mnli").parts == (Part("snli+mnli", "mnrl"),)
    assert RunConfig.model_validate_json(mixed.to_json()) == mixed
    assert config.replace(train_data="a.csv=cosent").objective == "cosent"


def test_dev_data_states_no_objective(config):
    with pytest.raises(InputError, match="leave out =cosent"):
        run(config.replace(eval_data="stsb:dev=cosent"))


@pytest.mark.parametrize(
    ("train_data", "changes", "reason"),
    [
        ("stsb=cosent+snli=cross-encoder", {}, "another kind of model"),
        ("stsb=cosent+snli=mnrl", {"batch_size": 1}, "at least 2 for mnrl"),
        ("stsb=cosent+snli=mse", {}, "mse needs a teacher"),
        ("stsb=mnrl+snli=mnrl", {"mine_negatives": True}, "for one data set"),
    ],
)
def test_parts_that_do_not_go_together_are_refused_in_one_sentence(train_data, changes, reason):
    with pytest.raises(InputError, match=reason) as error:
        RunConfig("cosent", train_data=train_data, **changes)
    assert "\n" not in str(error.value)
