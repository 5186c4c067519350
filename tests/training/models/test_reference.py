"""`models/encoder.py` and `cross_encoder.py` equal sentence-transformers, for each kind of folder of today."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import ARCHITECTURES, make_model

from training.data.load import load_data
from training.errors import InputError
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.model import PairModel, VectorModel, open_model, required

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
TEXTS = [
    "A man is playing a guitar.",
    "the cat",
    "",
    "  MiXeD  case, ÀÉÎ ſΣİ 北京 😀 \u202eright to left\u202c \x00\x07\x7f \ufeff [CLS] <s> [MASK] <mask>",
    "the dog is eating food on the guitar " * 9,
]
PAIRS = [
    ("a cat", "the guitar"),
    ("A cat", "a dog"),
    ("", "x"),
    ("the woman is eating " * 9, "a man"),
    ("a", "b " * 80),
]
FLAT = "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }}\n{% endfor %}"
STRUCTURED = (
    "{% for m in messages %}<{{ m['role'] }}>{% for part in m['content'] %}{% if part['type'] == 'text' %}"
    "{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)
GENERATION = FLAT + "{% if add_generation_prompt %}<|assistant|> the answer:{% endif %}"
TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}


def change(file: Path, **settings: Any) -> None:
    """Set settings in a JSON file, which may be new."""
    old = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**old, **settings}))


def other(
    folder: Path, name: str, tokenizer: str = "bert", model: str = "AutoModel", **config: Any
) -> Path:
    """A transformer of another architecture, behind the tokenizer of one of `ARCHITECTURES`."""
    make_model(folder, tokenizer)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    config = {"vocab_size": vocabulary, "pad_token_id": 0, **config}
    settings = getattr(transformers, f"{name}Config")(**config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = getattr(transformers, model).from_config(settings).eval()
        for weights in network.parameters():
            torch.nn.init.normal_(weights, std=0.2)
    network.save_pretrained(folder)
    return folder


def chat(folder: Path, template: str | dict[str, str]) -> Path:
    """Give the tokenizer in a folder a chat template, or several by name."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


# ---------------------------------------------------------------- bi-encoders


def written(folder: Path, plain: Path, pooling: Any = "mean", *after: Any, **settings: Any) -> Path:
    """A folder as sentence-transformers writes it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    options = {
        name: settings.pop(name)
        for name in ("prompts", "default_prompt_name", "truncate_dim")
        if name in settings
    }
    first = Transformer(str(plain), **settings)
    modules = [first, Pooling(first.get_embedding_dimension(), pooling_mode=pooling), *after]
    SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder))
    return folder


def dense() -> Any:
    """A layer from 32 dimensions to 24, for after the pooling."""
    from sentence_transformers.sentence_transformer.modules import Dense

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Dense(32, 24)


def make(
    file: str = "", architecture: str = "bert", pooling: Any = "mean", **settings: Any
) -> Callable[[Path], Path]:
    """A maker of a folder of sentence-transformers, with settings written into ``file`` afterwards."""

    def maker(path: Path) -> Path:
        folder = written(path / "model", make_model(path / "plain", architecture), pooling)
        if file:
            change(folder / file, **settings)
        return folder

    return maker


BERT = "sentence_bert_config.json"
GENERAL = "config_sentence_transformers.json"
POOLING = "1_Pooling/config.json"
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}


def half(path: Path) -> Path:
    folder = make(BERT, model_kwargs={"dtype": "float32"})(path)
    transformers.AutoModel.from_pretrained(folder).half().save_pretrained(folder)
    return folder


def sharded(path: Path) -> Path:
    folder = make()(path)
    model = transformers.AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    return folder


def decoder(template: str = FLAT, **settings: Any) -> Callable[[Path], Path]:
    """A decoder with a chat template, which sentence-transformers puts around each text."""
    return lambda path: written(
        path / "model", chat(make_model(path / "plain", "qwen3"), template), "lasttoken", **settings
    )


# The tokenizer's own side of truncation counts, whatever a call says.
CALL = {"text": {"max_length": 8, "truncation": True, "truncation_side": "left"}}
PROMPTS = {"prompts": {"query": "the question: ", "dog": "dog "}, "default_prompt_name": "query"}
ENCODERS: dict[str, Callable[[Path], Path]] = {
    **{
        f"bare {name}": lambda path, name=name: make_model(path / "m", name)
        for name in ARCHITECTURES
    },
    "bare albert": lambda path: other(
        path, "Albert", embedding_size=16, max_position_embeddings=64, **SMALL
    ),
    "bare electra": lambda path: other(
        path, "Electra", embedding_size=16, max_position_embeddings=64, **SMALL
    ),
    "bare deberta-v2": lambda path: other(path, "DebertaV2", max_position_embeddings=64, **SMALL),
    "bare camembert": lambda path: other(
        path, "Camembert", "roberta", pad_token_id=1, max_position_embeddings=66, **SMALL
    ),
    "bare opt, projected": lambda path: other(
        path, "OPT", word_embed_proj_dim=16, ffn_dim=48, max_position_embeddings=64, **SMALL
    ),
    "the greatest of each dimension": make(pooling="max"),
    "lower case": make(BERT, "roberta", do_lower_case=True),
    "max_seq_length": make(BERT, max_seq_length=8),
    "max_seq_length above the tokenizer's": lambda path: (
        change(make(BERT, max_seq_length=60)(path) / "tokenizer_config.json", model_max_length=12)
        or path / "model"
    ),
    "processing_kwargs": make(BERT, processing_kwargs=CALL),
    "processing_kwargs for all": make(
        BERT, processing_kwargs={"common": {"max_length": 9}, "text": {"max_length": 8}}
    ),
    "processor_kwargs": make(
        BERT, processor_kwargs={"model_max_length": 7, "truncation_side": "left"}
    ),
    "tokenizer_args": make(BERT, tokenizer_args={"model_max_length": 7}, max_seq_length=20),
    "the end of long texts": lambda path: (
        change(make()(path) / "tokenizer_config.json", truncation_side="left") or path / "model"
    ),
    "half precision": half,
    "weights in several files": sharded,
    "a chat template": decoder(),
    "a chat template and a prompt": decoder(**PROMPTS),
    "a chat template for contents": decoder(STRUCTURED),
    "a chat template with an end": decoder(
        GENERATION,
        processing_kwargs={
            "chat_template": {"add_generation_prompt": True},
            "text": {"max_length": 40},
        },
    ),
    "a chat template without its end": decoder(
        GENERATION,
        processing_kwargs={
            "chat_template": {"add_generation_prompt": True, "restore_suffix": False},
            "text": {"max_length": 40},
        },
    ),
    "a chat template that text alone goes around": lambda path: (
        change(decoder()(path) / BERT, modality_config={"text": TEXT}) or path / "model"
    ),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_the_vectors_are_those_of_the_reference(tmp_path: Path, kind: str):
    from sentence_transformers import SentenceTransformer

    folder = ENCODERS[kind](tmp_path)
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours = required(open_model(folder, dtype="float32", device="cpu"), VectorModel)
    theirs.max_seq_length = min(theirs.max_seq_length, ours.max_length)
    # The reference pads a decoder's batches on the left, where some architectures count positions
    # from the padding.
    expected = np.concatenate([theirs.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(ours.encode(TEXTS, normalize=None), expected, **TOLERANCE)
    if not isinstance(ours, Encoder):
        return
    ours.save(tmp_path / "saved")
    # Both open what is saved here.
    for opened in (
        Encoder.load(str(tmp_path / "saved"), dtype="float32", device="cpu"),
        SentenceTransformer(str(tmp_path / "saved"), device="cpu"),
    ):
        again = np.concatenate(
            [opened.encode([text], normalize_embeddings=False) for text in TEXTS]
        )
        np.testing.assert_allclose(again, expected, **TOLERANCE)


def test_the_default_model_equals_the_reference_also_when_saved(home: Path, tmp_path: Path):
    """Which lies in the layout of sentence-transformers 2."""
    from sentence_transformers import SentenceTransformer

    texts = [*TEXTS, "word " * 300, *load_data("stsb:test", home).columns[0][::10]]
    ours = Encoder.load("all-MiniLM-L6-v2", dtype="float32", device="cpu")
    theirs = SentenceTransformer(str((home / "models" / ours.name).resolve()), device="cpu")
    expected = theirs.encode(texts)
    assert (ours.pooling, ours.normalizes, ours.max_length) == ("mean", True, theirs.max_seq_length)
    np.testing.assert_allclose(ours.encode(texts), expected, **TOLERANCE)
    ours.save(tmp_path / "saved")
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert [type(module).__name__ for module in saved] == ["Transformer", "Pooling", "Normalize"]
    np.testing.assert_allclose(saved.encode(texts), expected, **TOLERANCE)


def adapter(path: Path, model_class: str, **settings: Any) -> tuple[Path, Path]:
    """A folder with an adapter alone beside its base, and one of its base with the adapter merged into it.

    The referee opens the second: transformers opens adapters by a newer peft than this project
    needs.
    """
    from peft import LoraConfig, get_peft_model

    base = make_model(path / "base")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = getattr(transformers, model_class).from_pretrained(base, num_labels=1)
        lora = LoraConfig(
            r=4,
            lora_alpha=8,
            target_modules=["query", "value"],
            init_lora_weights=False,
            **settings,
        )
        adapted = get_peft_model(model, lora)
    adapted.save_pretrained(path / "adapter")
    change(
        path / "adapter/adapter_config.json", base_model_name_or_path="a/folder/that/was/moved/base"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    adapted.merge_and_unload().save_pretrained(path / "merged")
    tokenizer.save_pretrained(path / "merged")
    return path / "adapter", path / "merged"


def test_an_adapter_alone_opens_over_its_base(tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    folder, merged = adapter(tmp_path, "AutoModel")
    written(tmp_path / "whole", merged, "cls")
    for name in ("modules.json", "1_Pooling/config.json", BERT):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    ours = Encoder.load(str(folder), dtype="float32", device="cpu")
    expected = SentenceTransformer(str(tmp_path / "whole"), device="cpu").encode(TEXTS)
    assert ours.pooling == "cls"
    np.testing.assert_allclose(ours.encode(TEXTS, normalize=None), expected, **TOLERANCE)
    with pytest.raises(InputError, match="is not a cross-encoder"):
        CrossEncoder.load(str(folder))


def test_an_adapter_of_a_cross_encoder_opens_over_its_base(tmp_path: Path):
    folder, merged = adapter(tmp_path, "AutoModelForSequenceClassification", task_type="SEQ_CLS")
    assert_equal_scores(folder, merged)
    with pytest.raises(InputError, match="is a cross-encoder"):
        Encoder.load(str(folder))


def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path):
    folder, _ = adapter(tmp_path, "AutoModel")
    change(folder / "adapter_config.json", target_modules=["query"])
    with pytest.raises(
        InputError, match=r"does not fit its base, because of base_model\.model\.encoder"
    ):
        Encoder.load(str(folder))
    change(folder / "adapter_config.json", base_model_name_or_path="nobody/has-this")
    with pytest.raises(InputError, match="the base of the adapter adapter cannot be opened"):
        Encoder.load(str(folder))


# ---------------------------------------------------------------- cross-encoders


def assert_equal_scores(folder: Path, referee: Path | None = None) -> None:
    from sentence_transformers import CrossEncoder as Reference

    ours = open_model(folder, dtype="float32")
    theirs = Reference(str(referee or folder), device="cpu")
    if not isinstance(ours, PairModel):
        # Without the name of its class a folder is asked for as a cross-encoder.
        ours = CrossEncoder.load(str(folder), dtype="float32")
    theirs.max_seq_length = min(theirs.max_seq_length, ours.max_length)
    expected = np.concatenate([theirs.predict([pair]) for pair in PAIRS])
    np.testing.assert_allclose(ours.predict(PAIRS), expected, **TOLERANCE)
    if not isinstance(ours, CrossEncoder):
        return
    ours.save(folder.parent / "saved")
    again = CrossEncoder.load(str(folder.parent / "saved"), dtype="float32")
    np.testing.assert_allclose(again.predict(PAIRS), expected, **TOLERANCE)


def classifier(path: Path, architecture: str = "bert", num_labels: int = 1) -> Path:
    """A plain sequence classifier."""
    folder = make_model(path, architecture)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=num_labels
        )
        model.save_pretrained(folder)
    return folder


def pairs(file: str = "", architecture: str = "bert", **settings: Any) -> Callable[[Path], Path]:
    """A maker of a cross-encoder of sentence-transformers, with settings written into ``file`` afterwards."""

    def maker(path: Path) -> Path:
        from sentence_transformers import CrossEncoder as Reference

        Reference(str(classifier(path / "plain", architecture)), device="cpu").save(
            str(path / "model")
        )
        if file:
            change(path / "model" / file, **settings)
        return path / "model"

    return maker


def yes_or_no(path: Path, template: str = "", no: int | None = 8, **settings: Any) -> Path:
    """A language model that answers yes or no, as sentence-transformers writes it."""
    from sentence_transformers import CrossEncoder as Reference
    from sentence_transformers.cross_encoder.modules import LogitScore, Transformer

    folder = make_model(path / "plain", "qwen3", initializer_range=0.1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        transformers.AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder)
    if template:
        chat(folder, template)
    options = {
        name: settings.pop(name) for name in ("prompts", "default_prompt_name") if name in settings
    }
    first = Transformer(str(folder), transformer_task="text-generation", **settings)
    Reference(modules=[first, LogitScore(7, no)], device="cpu", **options).save(str(path / "model"))
    return path / "model"


def named(*parts: str) -> str:
    return ".".join(("torch.nn.modules", *parts))


QUERY = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think></think>{% endif %}"
)
CROSS_ENCODERS: dict[str, Callable[[Path], Path]] = {
    "bare": lambda path: classifier(path / "m", "qwen3"),
    "as saved": pairs(),
    "of an older version": lambda path: (
        change(
            classifier(path / "m") / "config.json",
            sentence_transformers={
                "activation_fn": named("linear", "Identity"),
                "version": "4.1.0",
            },
        )
        or path / "m"
    ),
    **{
        f"that ends in {name}": pairs(GENERAL, activation_fn=named(*name.split(".")))
        for name in ("linear.Identity", "activation.ReLU", "activation.Tanh", "activation.Softmax")
    },
    "max_seq_length": pairs(BERT, max_seq_length=8),
    "processing_kwargs": pairs(BERT, processing_kwargs=CALL),
    "the end of long texts": lambda path: (
        change(pairs()(path) / "tokenizer_config.json", truncation_side="left") or path / "model"
    ),
    "lower case": pairs(BERT, "roberta", do_lower_case=True),
    "a default prompt": pairs(GENERAL, **PROMPTS),
    "a decoder with a chat template": lambda path: chat(classifier(path / "m", "qwen3"), FLAT),
    "yes or no": yes_or_no,
    "yes": lambda path: yes_or_no(path, no=None),
    "yes or no, and a prompt": lambda path: yes_or_no(path, **PROMPTS),
    "yes or no in a chat": lambda path: yes_or_no(path, QUERY),
    "yes or no in a chat, and a prompt": lambda path: yes_or_no(
        path, QUERY, processing_kwargs={"chat_template": {"add_generation_prompt": True}}, **PROMPTS
    ),
    "yes or no to contents in a chat": lambda path: yes_or_no(path, STRUCTURED),
    "yes or no in a chat of another name": lambda path: chat(
        yes_or_no(path, QUERY, processing_kwargs={"chat_template": {"chat_template": "rerank"}}),
        {"default": FLAT, "rerank": QUERY},
    ),
}


@pytest.mark.parametrize("kind", CROSS_ENCODERS)
def test_the_scores_are_those_of_the_reference(tmp_path: Path, kind: str):
    assert_equal_scores(CROSS_ENCODERS[kind](tmp_path))


# ---------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """A bi-encoder and a cross-encoder as sentence-transformers writes them, copied by tests that change them."""
    folder = tmp_path_factory.mktemp("folders")
    encoder = written(folder / "encoder", make_model(folder / "plain"), "mean", dense())
    return {Encoder: encoder, CrossEncoder: pairs()(folder / "cross-encoder")}


def test_weights_that_are_not_numbers_are_refused_at_opening(tmp_path: Path):
    folder = make_model(tmp_path)
    model = transformers.AutoModel.from_pretrained(folder)
    for number in (float("nan"), float("inf")):
        with torch.no_grad():
            model.encoder.layer[1].output.dense.weight[3, 4] = number
        model.save_pretrained(folder)
        with pytest.raises(
            InputError, match=r"encoder.layer.1.output.dense.weight in .* are not all numbers"
        ):
            Encoder.load(str(folder))


def test_tokens_without_embeddings_are_refused_at_opening(tmp_path: Path):
    folder = make_model(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["okapi", "zebra"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(InputError, match=r"resize its embeddings for zebra"):
        Encoder.load(str(folder))


# ---------------------------------------------------------------- tokenizers


def pieces(folder: Path) -> Path:
    """A BERT with a Unigram tokenizer, and settings that name no class of tokenizers: transformers builds WordPiece."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    letters = [*"\u2581abcdefghijklmnoprstuvwyzKDTC,.", "\u2581the", "\u2581cat", "at", "er"]
    vocabulary = [
        ("<s>", 0.0),
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *((piece, -2.0) for piece in letters),
    ]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    make_model(folder, "bert")
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {
        "bos": "<s>",
        "eos": "</s>",
        "unk": "<unk>",
        "sep": "</s>",
        "pad": "<pad>",
        "cls": "<s>",
    }
    settings = {f"{name}_token": token for name, token in names.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 64}))
    return folder


def cased(folder: Path) -> Path:
    """A BERT that keeps cases and accents, as only tokenizer.json says."""
    from tokenizers import Tokenizer, normalizers

    make_model(folder, "bert")
    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    settings = {f"{name}_token": token for name, token in names.items()}
    settings |= {"tokenizer_class": "BertTokenizer", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def split_digits(folder: Path) -> Path:
    """A decoder whose numbers are split after every third digit; its class, GPT-2's, does not split them."""
    from tokenizers import Regex, Tokenizer, pre_tokenizers

    make_model(folder, "qwen3")
    settings = json.loads((folder / "tokenizer.json").read_text())
    model = settings["model"]
    model["vocab"]["34"] = model["vocab"].pop("Z")
    model["merges"] = [["3", "4"]]
    tokenizer: Any = Tokenizer.from_str(json.dumps(settings))
    splits = pre_tokenizers.Split(Regex(r"\p{N}{1,3}|[^\p{N}]+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [splits, pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    change(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    return folder


@pytest.mark.parametrize("kind", [pieces, cased, split_digits, "roberta", "t5", "qwen3", "gemma3"])
def test_texts_are_read_as_tokenizer_json_says(tmp_path: Path, kind: Any):
    from tokenizers import Tokenizer

    folder = make_model(tmp_path / "m", kind) if isinstance(kind, str) else kind(tmp_path / "m")
    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoder = Encoder.load(str(folder), dtype="float32")
    texts = ["Die Katze, The Cat.", "1234", "na\u00efve \u5317\u4eac \U0001f600", ""]
    assert encoder.tokenize(texts) == [file.encode(text).ids for text in texts]
    encoder.save(tmp_path / "saved")
    assert Encoder.load(str(tmp_path / "saved")).tokenize(texts) == encoder.tokenize(texts)


UNKNOWN = [
    "\u1797\u17b6\u179f\u17b6",
    "\U0001f600 \U0001f600",
    "a cat \U0001f600",
    "\U0001f600 a cat",
    "the",
    "",
    "  ",
]


def test_texts_of_unknown_tokens_alone_are_told(tmp_path: Path):
    bert = classifier(tmp_path / "bert")
    unigram = pieces(tmp_path / "pieces")
    for model in (
        Encoder.load(str(bert)),
        CrossEncoder.load(str(bert)),
        Encoder.load(str(unigram)),
    ):
        assert model.is_unknown(UNKNOWN) == [True, True, *[False] * 5]


def test_a_tokenizer_of_bytes_knows_every_text(tmp_path: Path):
    assert not any(Encoder.load(str(make_model(tmp_path / "bytes", "qwen3"))).is_unknown(UNKNOWN))
