"""The home folder that the GPU benchmark takes along: python -m benchmarks.gpu_home FOLDER [--light]

FOLDER becomes a home folder with all-MiniLM-L6-v2 in bfloat16 and the STS benchmark, 48 MB:
SBERT_HOME=FOLDER. With --light the weights are left out, and the same command on the other machine
makes random weights in their place.
"""

import json
import shutil
import sys
from pathlib import Path

import torch

from benchmarks.encode import stsb_sentences
from training.catalogue import DEFAULT_MODEL, plain_sentences
from training.errors import InputError
from training.sources.home import home_folder
from training.sources.package_index import MINILM
from training.sources.resolve import model_folder, stsb_folder

# The size of BERT's vocabulary.
VOCABULARY = 30_522
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WITHOUT_WEIGHTS = shutil.ignore_patterns("*.safetensors")


def pack(folder: Path, is_light: bool = False) -> None:
    """Write the home folder. The model and the data come from this machine's own home, or where it gets them from."""
    from safetensors.torch import load_file, save_file

    target = folder / "models" / DEFAULT_MODEL
    # The folder was packed without weights on another machine.
    if is_light and target.is_dir():
        from transformers import AutoConfig, AutoModel

        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.from_pretrained(target)).save_pretrained(target)
        return
    source = model_folder(DEFAULT_MODEL).path
    shutil.copytree(source, target, ignore=WITHOUT_WEIGHTS, dirs_exist_ok=True)
    shutil.copytree(stsb_folder().path, folder / "data/stsb", dirs_exist_ok=True)
    if is_light:
        return
    weights = load_file(source / "model.safetensors")
    for name, weight in weights.items():
        if weight.is_floating_point():
            weights[name] = weight.bfloat16()
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def prepare(folder: Path) -> tuple[Path, str]:
    """Returns a home folder with all-MiniLM-L6-v2, and which weights it has, in words.

    The home folder is $SBERT_HOME or the platform's, if the model is there. Otherwise it is
    ``folder``, with random weights of the model's shape and a tokenizer that is trained on the
    sentences in assets/.
    """
    home = home_folder(None)
    if (home / "models" / DEFAULT_MODEL / "model.safetensors").is_file():
        return home, f"of {DEFAULT_MODEL}, where the model is called that"
    from transformers import BertConfig, BertModel, BertTokenizerFast

    target = folder / "models" / DEFAULT_MODEL
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(target)
    BertTokenizerFast(tokenizer_object=_tokenizer(), model_max_length=256).save_pretrained(target)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    ]
    (target / "modules.json").write_text(json.dumps(modules))
    # Without one of these files, the folder would count as an incomplete download.
    for name in MINILM.files:
        file = target / name
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_text("{}" if file.suffix == ".json" else "")
    return folder, "random"


def has_stsb() -> bool:
    """Whether the STS benchmark is in the home folder."""
    return (home_folder(None) / "data/stsb/sts-train.csv").is_file()


def sentences() -> list[str]:
    """The distinct sentences of the STS benchmark if it is in the home folder, else those of assets/."""
    if has_stsb():
        return stsb_sentences("train", "dev", "test")
    return plain_sentences()


def _tokenizer() -> object:
    """WordPiece, lower-cased, of the words in assets/."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(plain_sentences(), trainer)
    # The ids are the positions in `SPECIAL`.
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


if __name__ == "__main__":
    try:
        pack(Path(sys.argv[1]), "--light" in sys.argv)
    except (IndexError, InputError) as error:
        sys.exit(f"error: {error}; usage: python -m benchmarks.gpu_home FOLDER [--light]")
