"""LateInteraction: a text is a vector for each of its tokens, and two texts are compared token by token (MaxSim).

ColBERT (Khattab & Zaharia 2020, section 3.3): each token of the query finds the token of the document with the largest
cosine, and the score of the pair adds these maxima up. Documents are encoded before a query is known, as by a
bi-encoder, yet a score rests on single words, as with a cross-encoder. The price is a vector for each token.

- ``maxsim:<encoder>`` compares the token vectors of any encoder as they are, without special tokens. The score is the
  **mean** of the maxima over one text's tokens, averaged over both texts: in -1..1 and **symmetric**.
- A folder of ColBERT's kind, made by sentence-transformers' MultiVectorEncoder or by PyLate (Chaffin & Sourty 2025), is
  used as it was trained: token vectors are projected, markers stand before queries and documents, queries are filled up
  with [MASK] tokens, documents lose their punctuation. The score is the **sum** over the tokens of the query, which is
  the first text of a pair (the mean, if the folder says meanmaxsim): it is **not symmetric**.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken
from torch import Tensor, nn

from training.device import pick_device, pick_dtype
from training.errors import InputError
from training.inference.runner import PaddedRunner
from training.models.encoder import Encoder
from training.models.files import read_object, read_tensors
from training.models.folder import COLBERT, MULTI_VECTOR, PACKAGES, TRANSFORMER, ModelFolder, ModelFormat
from training.models.loading import max_input_length, open_transformer
from training.models.model import Pair, Ranking, Retriever, TokenModel, best_rows, open_model, required
from training.models.modules import EncoderParts
from training.models.modules.sentence import TOKENS, Dense, Normalize
from training.models.settings import MIN_LENGTH, checked
from training.models.tokenization import TokenVectors
from training.names import ModelName
from training.progress import Progress, ShouldStop, steps

CHUNK = 256  # texts whose token vectors are in memory at a time
FOLDERS = (MULTI_VECTOR, COLBERT)
MASK = "MultiVectorMask"
MODULES = (TRANSFORMER, "Dense", MASK, "Normalize")
# PyLate's Dense is read as that of sentence-transformers.
ALL_PACKAGES = (*PACKAGES, "pylate.models.Dense.")
# The types of the settings, in sentence-transformers' terms.
SETTINGS = {
    "query_length": int,
    "document_length": int,
    "query_expansion": dict,
    "skiplist_words": list,
    "skiplist_tasks": list,
}
ALL_SETTINGS = (*SETTINGS, "query_prefix", "document_prefix", "attend_to_expansion_tokens", "do_query_expansion")


class Matches(NamedTuple):
    """(token, the token of the other text that it found, cosine) for each token, in the order of the text."""

    score: float
    first: list[tuple[str, str, float]]  # tokens of the query
    second: list[tuple[str, str, float]]  # of the document; empty unless the score is symmetric


@dataclass(frozen=True)
class LateInteraction(TokenModel, Retriever):
    """A model that compares token vectors by MaxSim. ``LateInteraction.load`` opens one."""

    kind, has_dtype = "late-interaction model", True

    name: str
    query: TokenModel = field(repr=False)  # reads queries
    document: TokenModel = field(repr=False)  # the same weights, reads documents
    projection: nn.Sequential = field(default_factory=nn.Sequential, repr=False)  # (T, H) -> (T, D)
    skipped: Mapping[str, Collection[str]] = field(default_factory=dict, repr=False)  # by role; they do not count
    normalizes: bool = True  # the token vectors
    takes_mean: bool = True  # over the tokens, else the sum
    is_symmetric: bool = True  # of a pair, and without special tokens

    @classmethod
    def load(
        cls,
        name: str | ModelName,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> LateInteraction:
        """Load a folder or Hub id of ColBERT's kind, or any encoder, with or without ``maxsim:`` before its name.

        Arguments and errors are those of `CrossEncoder.load`.
        """
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        if not parsed.maxsim and not parsed.is_scratch:
            folder = folder or ModelFolder.of(parsed.name, home)
            if folder.kind in FOLDERS:
                return _open_folder(parsed, folder, parsed.dtype or dtype, device)
        model = required(open_model(replace(parsed, maxsim=False), None, dtype, device, home), TokenModel)
        return cls(str(replace(parsed, maxsim=True)), model, model)

    def encode_query(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Texts as queries -> float32 (T, D) each."""
        return [text.hidden for text in self.token_vectors(sentences, "query")]

    def encode_document(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Texts as documents -> float32 (T, D) each."""
        return [text.hidden for text in self.token_vectors(sentences, "document")]

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self.document.is_unknown(sentences)

    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        """The documents with the highest MaxSim of the query's tokens; all scores are in memory, (Q, N) float32."""
        scores = self.similarity(queries, documents, **watch)
        return [best_rows(np.arange(len(documents)), row, k) for row in scores]

    def score(
        self, pairs: Sequence[Pair], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """Pairs of texts, for a ColBERT a query and a document each -> float32 (N,), in the caller's order."""
        scores = np.empty(len(pairs), dtype=np.float32)
        for start in steps(range(0, len(pairs), CHUNK), on_progress, should_stop):
            part = pairs[start : start + CHUNK]
            queries, documents = (list(dict.fromkeys(pair[side] for pair in part)) for side in (0, 1))  # each once
            first = dict(zip(queries, self.encode_query(queries), strict=True))
            second = dict(zip(documents, self.encode_document(documents), strict=True))
            scores[start : start + CHUNK] = [self._scores([first[a]], [second[b]])[0, 0] for a, b in part]
        return scores

    predict = score

    def similarity(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Each of Q queries with each of N documents -> float32 (Q, N); of 256 documents the vectors are in memory.

        Of any model it is the tokens of the query, special ones too, that find those of the document: never symmetric.
        """
        model, scores = replace(self, is_symmetric=False), np.empty((len(queries), len(documents)), dtype=np.float32)
        encoded = model.encode_query(queries)
        for start in steps(range(0, len(documents), CHUNK), on_progress, should_stop):
            vectors = model.encode_document(documents[start : start + CHUNK])
            scores[:, start : start + CHUNK] = model._scores(encoded, vectors)
        return scores

    def matches(self, a: str, b: str) -> Matches:
        """The tokens of each text with those that they found in the other, and the sum of their cosines."""
        [first], [second] = self.token_vectors([a], "query"), self.token_vectors([b], "document")
        score = float(self._scores([first.hidden], [second.hidden])[0, 0])
        return Matches(score, _best(first, second), _best(second, first) if self.is_symmetric else [])

    def token_vectors(self, sentences: Sequence[str], role: str = "document") -> list[TokenVectors]:
        """The tokens that count, and their vectors, of texts as query or document: a zero vector if none do."""
        reader, skipped = {"query": self.query, "document": self.document}[role], self.skipped.get(role, ())
        device = next((parameter.device for parameter in self.projection.parameters()), torch.device("cpu"))
        counted = []
        for text in reader.token_vectors(sentences):
            words = text.words if self.is_symmetric else range(len(text.tokens))
            rows = [i for i, word in enumerate(words) if word is not None and text.tokens[i] not in skipped]
            with torch.inference_mode():
                vectors = self.projection(torch.from_numpy(text.hidden[rows]).to(device))
                vectors = F.normalize(vectors, dim=1) if self.normalizes else vectors
            hidden = (vectors if rows else vectors.new_zeros(1, vectors.shape[1])).cpu().numpy()
            counted.append(TokenVectors([text.tokens[i] for i in rows] or [""], [], [], hidden))
        return counted

    def _scores(self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> np.ndarray:
        """Q times (T, D) and N times (T_i, D) -> (Q, N)."""
        lengths = np.array([len(vectors) for vectors in documents])
        starts, tokens, scores = lengths.cumsum() - lengths, np.concatenate(documents).T, []
        for query in queries:
            cosines = query @ tokens  # (T, sum of T_i)
            there = np.maximum.reduceat(cosines, starts, axis=1).sum(axis=0)
            there = there / len(query) if self.takes_mean else there
            back = np.add.reduceat(cosines.max(axis=0), starts) / lengths if self.is_symmetric else there
            scores.append((there + back) / 2)
        return np.array(scores)


def _best(text: TokenVectors, other: TokenVectors) -> list[tuple[str, str, float]]:
    cosines = text.hidden @ other.hidden.T
    best = cosines.argmax(axis=1)
    return [(text.tokens[i], other.tokens[j], float(cosines[i, j])) for i, j in enumerate(best)]


class ExpandedRunner(PaddedRunner):
    """Queries filled up with tokens to which no token attends. ``pad_id`` is theirs."""

    def attended(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        return (ids != self.pad_id).flip(1).cumsum(1).flip(1) > 0  # all up to the last that is none of them


def _open_folder(name: ModelName, folder: ModelFolder, dtype: str, device: str) -> LateInteraction:
    torch_device = pick_device(device)
    torch_dtype = pick_dtype(dtype, torch_device)
    if torch_dtype == torch.int8:
        raise InputError(f"{name.name} has no int8; choose auto")
    modules = folder.checked_modules(MODULES, ALL_PACKAGES)
    if (order := [MODULES.index(module.kind) for module in modules if module.kind != MASK]) != sorted(order):
        kinds = " + ".join(module.kind for module in modules)
        raise InputError(f"{name.name} is a model of {kinds}, an order of modules that is not supported")
    places = {kind: [module.folder for module in modules if module.kind == kind] for kind in MODULES}
    is_native = folder.kind == MULTI_VECTOR
    if folder.is_stanford:
        folder, projections = _as_pylate(folder)
    else:
        projections = [Dense.read(place, TOKENS) for place in places["Dense"]]
    settings = _settings(folder, places[MASK])
    backbone, tokenizer = open_transformer(folder)
    backbone.to(torch_device).eval()
    values = folder.transformer_settings(more=SETTINGS) | folder.general_settings(FOLDERS, ALL_SETTINGS)
    form = ModelFormat(folder.first, **values)
    form = replace(form, dimension=None, prompts={**form.prompts, **_markers(tokenizer, folder.general, form.prompts)})
    lengths = (settings.get(f"{role}_length") or form.max_length for role in ("query", "document"))
    query, document = (replace(form, max_length=max_input_length(tokenizer, backbone, length)) for length in lengths)
    expansion = settings.get("query_expansion") or {}
    if expansion:
        query = _expanded(folder, query, expansion, tokenizer, backbone)
    parts = EncoderParts(backbone, tokenizer, document, folder.source, nn.Sequential())
    reader = Encoder(str(name), parts, torch_dtype).for_role("document")
    runner: Any = reader.inference
    if query.expansion and not expansion.get("attend"):
        runner = ExpandedRunner(backbone, torch_dtype, query.expansion[1])
    return LateInteraction(
        str(name),
        Encoder(str(name), parts._replace(model_format=query), torch_dtype).for_role("query").with_runner(runner),
        reader,
        nn.Sequential(*projections).to(torch_device).eval(),
        dict.fromkeys(settings.get("skiplist_tasks") or ["document"], frozenset(settings.get("skiplist_words") or ())),
        normalizes=not is_native or any(Normalize.read(place, TOKENS) for place in places["Normalize"]),
        takes_mean=folder.general.get("similarity_fn_name") == "meanmaxsim",
        is_symmetric=False,
    )


def _settings(folder: ModelFolder, masks: list[Path]) -> dict[str, Any]:
    """The settings of queries and documents. InputError if one cannot be used."""
    if folder.kind == MULTI_VECTOR:
        settings = dict(folder.transformer)
        for place in masks:
            mask = read_object(place / "config.json")
            settings |= checked(folder.path.name, MASK, mask, (*SETTINGS, "keep_only_token_ids"))
        if settings.get("keep_only_token_ids") or (settings.get("query_expansion") and not masks):
            raise InputError(f"{folder.path.name} scores other tokens than those of texts; choose another model")
    else:
        # PyLate leaves punctuation out of documents and fills queries up, unless its folder says otherwise.
        general = folder.general
        length, attends = general.get("query_length"), bool(general.get("attend_to_expansion_tokens"))
        filled = {"query_expansion": {"strategy": "fixed", "attend": attends, "length": length or 32}}
        settings = {
            "skiplist_words": list(string.punctuation),
            **{key: general[key] for key in ("skiplist_words", "document_length") if general.get(key) is not None},
            **({"query_length": length} if general.get("do_query_expansion") is False else filled),
        }
    for key, kind in SETTINGS.items():
        value = settings.get(key)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, int) and value < MIN_LENGTH)):
            raise InputError(f"{folder.path.name} has the {key} {value!r}, which cannot be used; fetch the model again")
    return settings


def _as_pylate(folder: ModelFolder) -> tuple[ModelFolder, list[nn.Module]]:
    """A ColBERT of its authors with the settings of artifact.metadata in PyLate's terms, and its projection."""
    weights = read_tensors(folder.path).get("linear.weight")
    if weights is None:
        raise InputError(f"{folder.path.name} has no projection, linear.weight; fetch the model again")
    projection = Dense(weights.shape[1], weights.shape[0], bias=False, activation="torch.nn.Identity")
    projection.linear.weight = nn.Parameter(weights.float())
    metadata = read_object(folder.path / "artifact.metadata", {})
    general = {
        "query_prefix": f"{metadata.get('query_token_id') or '[unused0]'} ",
        "document_prefix": f"{metadata.get('doc_token_id') or '[unused1]'} ",
        "query_length": metadata.get("query_maxlen"),
        "document_length": metadata.get("doc_maxlen"),
        "attend_to_expansion_tokens": metadata.get("attend_to_mask_tokens"),
        "skiplist_words": list(string.punctuation) if metadata.get("mask_punctuation", True) else [],
    }
    return replace(folder, general=general), [projection]


def _markers(tokenizer: Any, general: Mapping[str, Any], prompts: Mapping[str, str]) -> dict[str, str]:
    """The prompts with PyLate's markers before them: each is one token, also where the tokenizer would split it."""
    markers = {role: str(general.get(f"{role}_prefix") or "") for role in ("query", "document")}
    for marker in filter(None, markers.values()):
        token = next((text for text in (marker, *marker.split()[:1]) if text in tokenizer.get_vocab()), None)
        if token and tokenizer.tokenize(token) != [token]:
            tokenizer.add_tokens([AddedToken(token, normalized=False, special=True)], special_tokens=True)
    return {role: text + prompts.get(role, "").removeprefix(text) for role, text in markers.items() if text}


def _expanded(
    folder: ModelFolder, form: ModelFormat, expansion: dict[str, Any], tokenizer: Any, backbone: nn.Module
) -> ModelFormat:
    """``form`` for queries that are filled up to a length, also beyond that of other texts."""
    checked(folder.path.name, "query_expansion", expansion, ("strategy", "attend", "token", "length"))
    token, length = expansion.get("token") or tokenizer.mask_token, expansion.get("length")
    is_last = token in (tokenizer.sep_token, tokenizer.eos_token) or tokenizer.padding_side == "left"
    is_usable = isinstance(length, int) and length >= MIN_LENGTH and expansion.get("strategy") in ("fixed", "min")
    if is_last or token not in tokenizer.get_vocab() or not is_usable:
        raise InputError(
            f"{folder.path.name} fills queries ({expansion.get('strategy')}) up to {length!r} tokens with {token!r}, "
            "which is not supported"
        )
    filled = max_input_length(tokenizer, backbone, length)
    most = filled if expansion.get("strategy") == "fixed" else max(filled, form.max_length or 0)
    return replace(form, max_length=most, expansion=(filled, tokenizer.convert_tokens_to_ids(token), token))
