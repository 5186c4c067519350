"""Lesson 13: the same model on the same pairs under ten prompts, one of them nonsense.

A prompt is put before every sentence. Kostiuk & Enevoldsen (2026, arXiv 2605.22544) ran 6 models on
11 data sets under 15 prompts for each set: with a suitable prompt, any of the models comes first.
"""

from functools import lru_cache
from textwrap import shorten
from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.style import PALETTE, error_bars, short_label
from sbert_app.formats import format_count, format_number
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    change_of_rho,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.pages.learn.samples import SIMILAR_FROM, GoldSample, Timed, gold_sample
from training.evaluation.bootstrap import ALPHA, Difference, correlation, sentence_keys
from training.evaluation.diagnostics import pair_cosines
from training.similarities import cosine

PAIRS = 150
NONSENSE = "xyzzy: "
PROMPTS = (
    "",
    "query: ",
    "passage: ",
    "A sentence: ",
    "Represent this sentence: ",
    "Instruct: Find similar sentences. ",
    "Classify the topic: ",
    "Translate to French: ",
    "This sentence means: ",
    NONSENSE,
)


class PromptResult(NamedTuple):
    """The model under one prompt."""

    prompt: str
    rho: float  # Spearman ×100 between cosine and gold score
    change: Difference  # of ρ ×100, against no prompt on the same pairs
    random: float  # mean cosine of sentences of different pairs
    similar: float  # … of pairs with a gold score of 4 or more

    @property
    def label(self) -> str:
        return f"“{shorten(self.prompt, 40, placeholder='…')}”" if self.prompt else "no prompt"


class Prompts(NamedTuple):
    """The results of all prompts on the same pairs. A prompt without a defined ρ is left out."""

    rows: list[PromptResult]  # no prompt first
    model: str
    pairs: GoldSample
    timed: Timed  # the encoding under all prompts

    def of(self, prompt: str) -> PromptResult:
        return next(row for row in self.rows if row.prompt == prompt)


def measure(context: Context, own: str) -> Prompts:
    """All of `PROMPTS`, and the reader's ``own``, if there is one. InputError if model or data cannot be loaded."""
    sample = gold_sample(context, PAIRS)
    prompts = [*PROMPTS, own] if own.strip() else PROMPTS
    encoded: dict[str, tuple[np.ndarray, np.ndarray, Timed]] = {}
    watch = context.watch.stage(f"Encoding {sample.label} under {len(prompts)} prompts")
    for prompt in prompts:
        watch.check()
        watch.on_progress(len(encoded), len(prompts))
        encoded[prompt] = _vectors(context, prompt)
    timings = [timing for *_, timing in encoded.values()]
    # `at` is the time of day of the last encoding.
    timed = Timed(sum(timing.seconds for timing in timings), max(timing.at for timing in timings))
    keys = sentence_keys((sample.first, sample.second))
    plain_first, plain_second, _ = encoded[""]
    plain = correlation(cosine(plain_first, plain_second), sample.gold, keys=keys)
    rows = []
    # "" comes first, and is compared with itself.
    for prompt, (first, second, _) in encoded.items():
        cosines = cosine(first, second)
        rho = correlation(cosines, sample.gold, keys=keys)
        change = Difference.of(rho, plain)
        # If all cosines are equal, their correlation is undefined, and the change is None.
        if change is not None:
            similar = cosines[sample.gold >= SIMILAR_FROM].mean()
            rows.append(
                PromptResult(prompt, 100 * rho.value, change, pair_cosines(first).mean(), similar)
            )
    return Prompts(rows, context.setup.model, sample, timed)


# The vectors under `PROMPTS` stay the same while the reader tries prompts of their own.
@lru_cache(maxsize=4 * len(PROMPTS))
def _vectors(context: Context, prompt: str) -> tuple[np.ndarray, np.ndarray, Timed]:
    """The vectors of the first and of the second sentences under a prompt, and the time."""
    sample = gold_sample(context, PAIRS)
    encoder = context.encoder
    sentences = [prompt + sentence for sentence in (*sample.first, *sample.second)]
    with Timed() as timed:
        first, second = np.split(encoder.encode(sentences), 2)
    return first, second, timed


def prompt_strip(rows: list[PromptResult]) -> go.Figure:
    """ρ ×100 under each prompt, best first; the whisker is the 95% interval of its difference from no prompt."""
    # The first row is the one without a prompt.
    plain = rows[0].rho
    # The axis runs from the bottom to the top, so the best prompt comes last.
    ordered = sorted(rows, key=lambda row: row.rho)
    estimates = [(row.rho, plain + row.change.low, plain + row.change.high) for row in ordered]
    colours = {"": "orange", NONSENSE: "vermillion"}
    places = list(range(len(ordered)))
    figure = go.Figure()
    figure.add_scatter(
        x=[row.rho for row in ordered],
        y=places,
        mode="markers",
        marker_size=11,
        marker_color=[PALETTE[colours.get(row.prompt, "blue")] for row in ordered],
        error_x=error_bars(estimates, "grey"),
        text=[short_label(row.label) for row in ordered],
        hovertemplate="%{text}: ρ %{x:.1f}<extra></extra>",
    )
    figure.add_vline(x=plain, line={"dash": "dash", "color": PALETTE["orange"]})
    figure.update_yaxes(tickvals=places, ticktext=[short_label(row.label, 22) for row in ordered])
    return styled(figure, 30 * len(rows) + 90, "Spearman ρ ×100")


def describe(result: Prompts) -> Markup:
    """ρ and the level of the cosines under each prompt, and how far the wording alone moves them."""
    # The first row is the one without a prompt.
    plain, *others = result.rows
    cells = []
    for row in result.rows:
        change = format_number(None if row is plain else row.change.points, 1, "+")
        cells.append(
            (row.label, f"{row.rho:.1f}", change, f"{row.random:.3f}", f"{row.similar:.3f}")
        )
    best = max(result.rows, key=lambda row: row.rho)
    worst = min(result.rows, key=lambda row: row.rho)
    different = sum(row.change.p_value < ALPHA for row in others)
    differ = "differs" if different < 2 else "differ"
    nonsense = result.of(NONSENSE)
    moves = "raises" if nonsense.random > plain.random else "lowers"
    sentences = [
        f"The wording alone moves ρ by {best.rho - worst.rho:.1f} points, from {worst.rho:.1f} ({worst.label}) to "
        f"{best.rho:.1f} ({best.label}): same model, same pairs.",
        f"{different or 'None'} of the {len(others)} prompts {differ} from no prompt by more than chance would explain "
        f"(paired bootstrap, p < {ALPHA}, each test alone).",
        f"The nonsense {nonsense.label} {moves} the mean cosine of random pairs from {plain.random:.2f} to "
        f"{nonsense.random:.2f}; that of similar ones moves from {plain.similar:.2f} to {nonsense.similar:.2f}: a "
        f"threshold that was chosen without it no longer fits. {change_of_rho(nonsense.change.points, 'It')}",
    ]
    header = ("prompt", "ρ ×100", "change", "random pairs, cosine", "similar pairs, cosine")
    prompts = format_count(len(result.rows), "prompt")
    about = f"{result.model}, {result.pairs.label}, {prompts}, encoded in {result.timed}"
    return table(header, cells, wide=True) + findings(sentences) + measured(about)


def show(context: Context, own: str) -> Measurement:
    result = measure(context, own)
    return Measurement(prompt_strip(result.rows), describe(result))


def build() -> Demo:
    hint = "Put before every sentence, as it is; press Enter"
    own = gr.Textbox(
        "", label="A prompt of your own", info=hint, max_lines=1, elem_id="learn-prompt"
    )
    return Demo([own], show, triggers=[own.submit])
