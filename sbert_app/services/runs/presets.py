"""Starting points of a run: what to set, and what it teaches. The page shows them as buttons.

The recipes of the paper (sections 3.1 and 4) start from a raw BERT and need the Hub. Ours start from the model that
ships, which was already trained on sentence pairs, so that they work anywhere and the curves rise less; each says
which base the paper had.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sbert_app.services.runs.record import Run
from training.catalogue import BILSTM, DEFAULT_MODEL
from training.names import ModelName
from training.trainer.config import RunConfig, default_learning_rate

NLI = ("nli", "snli", "mnli", "all-nli")


@dataclass(frozen=True)
class Preset:
    """``values`` are fields of a `RunConfig`; those left out keep their default."""

    title: str
    lesson: str
    values: dict[str, Any] = field(default_factory=dict)

    def config(self) -> RunConfig:
        return RunConfig(**self.fields())

    def fields(self) -> dict[str, Any]:
        """A value for each field of a run; the data may still have to be chosen."""
        return RunConfig("regression", pooling="mean").to_dict() | self.values


PRESETS: dict[str, Preset] = {
    "demo": Preset(
        "60-second demo",
        "Regression on a part of STSb: the cosine of each pair is pulled towards its gold score. Dev ρ climbs within "
        "a minute, and the cosine of random pairs shows that the space stays open.",
        {"max_steps": 200, "name": "60-second demo"},
    ),
    "max": Preset(
        "watch it fail: max pooling",
        "The same minute with max pooling, on a base that was made with mean pooling. The loss falls as it should, yet "
        "dev ρ falls with it: in the ablation that ships, from 82.6 to 66.2 in one epoch; the paper's Table 6 has "
        "69.9. Tick the demo in the list of runs to see both.",
        {"max_steps": 200, "pooling": "max", "name": "max pooling"},
    ),
    "collapse": Preset(
        "watch it collapse: no pretraining",
        "Random weights and CLS pooling. Every sentence gets nearly the same vector: the cosine of random pairs stays "
        "at 0.98 and more, and the loss hardly moves. ρ alone would not have told you.",
        {"max_steps": 200, "pooling": "cls", "base": "scratch:6x384", "name": "collapse"},
    ),
    "stsb": Preset(
        "paper: STSb recipe",
        "Section 4.2: regression on the whole STS benchmark, 4 epochs, batch 16, Adam, 2e-5, warm-up over 10%. The "
        "paper starts from bert-base-uncased (type it as the base where the Hub can be reached) and reports ρ 84.7.",
        {"epochs": 4, "name": "STSb recipe"},
    ),
    "nli": Preset(
        "paper: NLI recipe",
        "Section 3.1: a softmax over (u, v, |u−v|) on SNLI and MultiNLI, one epoch, batch 16. Both sets come from the "
        "Hub, 942,069 pairs; the estimate below is for this machine. A limit in Maximum steps shows the beginning "
        "alone. The paper starts from bert-base-uncased.",
        {"objective": "classification", "train_data": "all-nli:train", "name": "NLI recipe"},
    ),
    "infersent": Preset(
        "before BERT: InferSent",
        "Conneau et al. 2017, in the paper’s Table 1: a bidirectional LSTM over GloVe, the maximum over time, and a "
        "softmax over (u, v, |u−v|, u∗v) on NLI. All that it knows of language before is in its word vectors. Type "
        "scratch:dan as the base for a Deep Averaging Network, which is many times as fast.",
        {
            "objective": "classification",
            "concatenation": "uv+diff+mul",
            "train_data": "all-nli:train",
            "base": BILSTM,
            "pooling": None,
            "batch_size": 64,
            "learning_rate": default_learning_rate(BILSTM),
            "max_steps": 1_000,
            "name": "InferSent",
        },
    ),
    "two-stage": Preset(
        "two-stage",
        "Section 4.2 again: first NLI, then STSb. Choose a finished run of the NLI recipe as the base; this run then "
        "goes on from it with regression. In the paper’s Table 2 the first stage changes ρ by −0.13 to +1.65 points.",
        {"epochs": 4, "name": "two-stage"},
    ),
    "simcse": Preset(
        "no labels: SimCSE",
        "Gao et al. 2021: plain sentences. Each passes through the network twice, with other dropout, and has to find "
        "itself among the other sentences of its batch. This is how a model is adapted to a domain in which nothing is "
        "labelled: upload a file with a column sentence.",
        {"objective": "simcse", "batch_size": 64, "max_steps": 100, "name": "SimCSE"},
    ),
    "distil": Preset(
        "learn from a cross-encoder",
        "The cosine of each pair is pulled towards the score of a cross-encoder, which reads both sentences at once "
        "and is more accurate; no gold score is used. With a file of your own, unlabelled pairs become training "
        "data (Thakur et al. 2021, Augmented SBERT).",
        {"objective": "mse", "teacher": "minilm-stsb", "max_steps": 200, "name": "distilled from minilm-stsb"},
    ),
    "mine": Preset(
        "my own data",
        "Upload a file with sentence1, sentence2 and score (regression) or label (classification); without either, "
        "pairs that belong together (mnrl); or anchor, positive, negative (triplet); or sentence (simcse). The "
        "objective follows the file.",
        {"objective": "mnrl", "train_data": "", "batch_size": 32, "name": ""},
    ),
}


def two_stage_base(runs: Iterable[Run]) -> str:
    """The newest run on NLI data that has a model, as a base; the default base if there is none."""
    for run in runs:
        if run.has_model and run.config.train_data.partition(":")[0] in NLI:
            return str(ModelName.of_run(run.id))
    return DEFAULT_MODEL
