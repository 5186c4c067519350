"""The fast path computes what the transformers library computes, whatever stands beside a sentence."""

import copy
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from depth import examples, first
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ARCHITECTURES, make_model
from torch import Tensor, nn

from training import parallel
from training.data.load import load_data
from training.errors import StoppedError
from training.evaluation.metrics import spearman
from training.inference import layers
from training.inference.fused_bert import supports_fused
from training.inference.runner import InferenceRunner, PackedRunner, PaddedRunner, build_runner
from training.models.encoder import Encoder
from training.models.folder import ModelFolder
from training.models.loading import open_backbone

lengths_lists = st.lists(st.integers(1, 64), min_size=1, max_size=25)


def backbone(folder: Path, architecture: str, **settings: object) -> nn.Module:
    """Random weights of a size at which float32 has five digits left."""
    return open_backbone(
        ModelFolder.read(make_model(folder, architecture, initializer_range=0.2, **settings))
    ).eval()


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    return backbone(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    return backbone(tmp_path_factory.mktemp("bert"), "bert")


def sentences(lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Token ids at random, none of them a special token."""
    draw = np.random.default_rng(seed)
    return [draw.integers(5, 100, length).tolist() for length in lengths]


@torch.no_grad()
def alone(model: nn.Module, ids: list[list[int]]) -> list[Tensor]:
    """What the module itself computes for each sentence, one at a time: (T, D) each."""
    return [model(input_ids=torch.tensor([row])).last_hidden_state[0].float() for row in ids]


def run(prepared: InferenceRunner, ids: list[list[int]]) -> list[Tensor]:
    """Hidden states of each sentence, without padding."""
    states: list[Tensor] = [torch.empty(0)] * len(ids)
    for rows, (hidden, mask) in prepared.map(ids, lambda hidden, mask: (hidden, mask)):
        for place, i in enumerate(rows):
            states[i] = hidden[place] if mask is None else hidden[place][mask[place]]
    return states


def assert_close(mine: list[Tensor], theirs: list[Tensor], tolerance: float = 1e-5) -> None:
    assert [len(a) for a in mine] == [len(b) for b in theirs]
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=0, atol=tolerance)


@settings(max_examples=examples(15))
@given(lengths=lengths_lists)
def test_float32_is_the_module_alone_with_each_sentence(model: nn.Module, lengths: list[int]):
    ids = sentences(lengths)
    assert_close(run(build_runner(model, torch.float32, pad_id=0), ids), alone(model, ids))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_only_models_outside_of_the_bert_family_need_padding(tmp_path: Path, architecture: str):
    kind = PaddedRunner if architecture in ("t5", "qwen3", "gemma3") else PackedRunner
    assert type(build_runner(backbone(tmp_path, architecture), torch.float32, pad_id=0)) is kind


@pytest.mark.parametrize("architecture", ["bert", "mpnet", "modernbert"])
def test_long_texts_take_pytorchs_attention_and_mean_the_same(tmp_path: Path, architecture: str):
    long = layers.LONG_ROW_TOKENS
    model = backbone(tmp_path, architecture, max_position_embeddings=long + 80)
    ids = sentences([long + 70, 3, 65, long, long + 1, 20])
    assert_close(run(build_runner(model, torch.float32, pad_id=0), ids), alone(model, ids))


def test_bfloat16_is_close_and_computed_in_bfloat16(model: nn.Module):
    ids = sentences([3, 64, 17, 17])
    states = run(build_runner(model, torch.bfloat16, pad_id=0), ids)
    assert {state.dtype for state in states} == {torch.bfloat16}
    for mine, theirs in zip(states, alone(model, ids), strict=True):
        assert (
            nn.functional.cosine_similarity(mine.float().flatten(), theirs.flatten(), dim=0) > 0.995
        )


def test_training_a_model_later_does_not_change_its_runner(model: nn.Module):
    ids = sentences([5, 9])
    trained = copy.deepcopy(model)
    prepared = build_runner(trained, torch.float32, pad_id=0)
    before = run(prepared, ids)
    with torch.no_grad():
        for weight in trained.parameters():
            weight.mul_(2)
    trained.train()
    assert_close(run(prepared, ids), before, tolerance=0)
    assert not any(weight.grad_fn for weight in before)


class Adapter(nn.Linear):
    """Like Linear, and more: what peft puts in its place."""


def test_weights_that_are_not_plain_run_as_they_are(bert: nn.Module):
    adapted = copy.deepcopy(bert)
    plain = adapted.encoder.layer[1].intermediate.dense
    adapted.encoder.layer[1].intermediate.dense = Adapter(plain.in_features, plain.out_features)
    assert supports_fused(bert)
    assert not supports_fused(adapted)


@pytest.mark.parametrize(
    "setting",
    [
        {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
        {"global_attn_every_n_layers": 1},
        {"local_attention": 4, "global_rope_theta": 500.0, "local_rope_theta": 20.0},
    ],
)
def test_every_modernbert_is_fused_and_exact(tmp_path: Path, setting: dict[str, object]):
    model = backbone(tmp_path, "modernbert", **setting)
    prepared = build_runner(model, torch.float32, pad_id=0)
    assert isinstance(prepared, PackedRunner)
    ids = sentences([7, 30, 90, 12, 3])
    assert_close(run(prepared, ids), alone(model, ids))


@pytest.mark.parametrize(
    ("architecture", "setting"),
    [
        ("bert", {"hidden_act": "relu"}),
        ("bert", {"is_decoder": True}),
        ("modernbert", {"hidden_activation": "relu"}),
    ],
)
def test_another_activation_or_direction_runs_as_it_is(
    tmp_path: Path, architecture: str, setting: dict[str, object]
):
    model = backbone(tmp_path, architecture, **setting)
    ids = sentences([7, 30])
    runner = build_runner(model, torch.float32, pad_id=0)
    assert isinstance(runner, PaddedRunner)
    assert_close(run(runner, ids), alone(model, ids))


def test_many_threads_get_the_vectors_that_one_gets(model: nn.Module):
    prepared = build_runner(model, torch.float32, pad_id=0)
    jobs = [sentences(list(range(1, 40 + seed)), seed) for seed in range(8)]
    expected = [run(prepared, ids) for ids in jobs]
    with ThreadPoolExecutor(8) as threads:
        for mine, theirs in zip(
            threads.map(lambda ids: run(prepared, ids), jobs), expected, strict=True
        ):
            assert_close(mine, theirs, tolerance=1e-6)


def test_each_sentence_is_in_one_batch(model: nn.Module):
    batches = [
        rows
        for rows, _ in build_runner(model, torch.float32, 0).map(
            sentences([60] * 8), lambda *_: None
        )
    ]
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(8))
    assert len(batches) >= min(8, parallel.num_threads())


def test_no_sentences_need_no_batch(model: nn.Module):
    assert run(build_runner(model, torch.float32, pad_id=0), []) == []


def test_stop_gives_what_is_under_way_and_says_so(bert: nn.Module):
    answers = itertools.chain([False, False], itertools.repeat(True))
    done: list[int] = []
    with pytest.raises(StoppedError):
        for rows, _ in build_runner(bert, torch.float32, 0).map(
            sentences([64] * 200), lambda *_: None, lambda: next(answers)
        ):
            done.extend(rows)
    assert 0 < len(done) < 200


def test_real_text_of_all_lengths_in_float32():
    encoder = Encoder.load("all-MiniLM-L6-v2", dtype="float32", device="cpu")
    texts = sorted({text for column in load_data("stsb:test").columns for text in column}, key=len)
    ids = encoder.tokenize([*texts[::40], texts[-1], " ".join(texts[:100])])
    assert max(map(len, ids)) == encoder.max_length
    assert_close(
        run(build_runner(encoder.backbone, torch.float32, 0), ids), alone(encoder.backbone, ids)
    )


@pytest.mark.parametrize(("every", "tolerance"), first(1, [(20, 0.3), (4, 0.1)]))
def test_bfloat16_ranks_as_float32_does(every, tolerance):
    """Spearman ρ ×100 on a part of the STS benchmark."""
    data = load_data("stsb:test").select(range(0, 1379, every))

    def rho(dtype: str) -> float:
        first, second = map(
            Encoder.load("all-MiniLM-L6-v2", dtype=dtype, device="cpu").encode, data.columns
        )
        return 100 * spearman((first * second).sum(1), np.array(data.scores))

    assert rho("bfloat16") == pytest.approx(rho("float32"), abs=tolerance)
