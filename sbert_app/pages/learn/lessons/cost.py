"""Lesson 5: the cost of comparing N sentences with each other, for bi-encoder and cross-encoder.

The rates are measured on 512 sentences and 64 pairs of the data, medians of three; the times for N
sentences are extrapolated from them. Paper: section 1 (10,000 sentences: 49,995,000 pairs, about 65
hours with BERT, about 5 seconds with SBERT, on a V100) and Table 7.
"""

import statistics
import time
import timeit
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.style import add_scatter
from sbert_app.formats import format_duration
from sbert_app.pages.components.events import event_options
from sbert_app.pages.learn.lesson import Context, Demo, Measurement, measured, styled, table, tiles
from sbert_app.pages.learn.samples import Timed, gold_sample
from sbert_app.services.results.results import data_label

# The size of a measurement; the rate of a single batch would be far too low.
SENTENCES = 512
PAIRS = 64
ROUNDS = 3
# The example in the introduction of the paper.
PAPER_SENTENCES = 10_000
PAPER_CROSS_SECONDS = 65 * 3600.0
PAPER_ENCODE_SECONDS = 5.0
YEAR = 31_557_600
UNITS = {
    0.001: "1 ms",
    1: "1 s",
    60: "1 min",
    3_600: "1 h",
    86_400: "1 day",
    YEAR: "1 year",
    1_000 * YEAR: "1000 y",
}


class Rates(NamedTuple):
    """The rates of this machine, each the median of three measurements.

    ``product_seconds`` is the time of the matrix product of 10,000 sentences.
    """

    sentences_per_second: float
    pairs_per_second: float
    product_seconds: float
    data: str
    timed: Timed


@lru_cache(maxsize=2)
def measure(context: Context, moment: float) -> Rates:
    """Measures the setup's model, once for each ``moment`` at which a measurement was requested.

    ``moment`` is only a key of the cache: as long as it stays the same, another number of sentences
    on the page does not measure again. InputError if the models or the data cannot be loaded.
    """
    encoder = context.encoder
    cross_encoder = context.cross_encoder
    sample = gold_sample(context, SENTENCES)
    sentences = [*dict.fromkeys([*sample.first, *sample.second])][:SENTENCES]
    pairs = list(zip(sample.first, sample.second, strict=True))[:PAIRS]
    watch = context.watch.stage(f"Measuring both models {ROUNDS} times")
    with Timed() as timed:
        # This pass gives the vectors of the product. Its time does not count.
        vectors = encoder.encode(sentences)
        # Three parts: the pass above, the product with the timed encoding, and the cross-encoder.
        watch.on_progress(1, 3)
        # The vectors, repeated until there are 2,000. The time of the product grows with the square of
        # their number, and is extrapolated to PAPER_SENTENCES.
        block = np.resize(vectors, (2_000, vectors.shape[1]))
        product = _median_seconds(lambda: block @ block.T) * (PAPER_SENTENCES / len(block)) ** 2
        encoding = _median_seconds(lambda: encoder.encode(sentences))
        watch.on_progress(2, 3)
        crossing = _median_seconds(lambda: cross_encoder.predict(pairs))
    return Rates(len(sentences) / encoding, len(pairs) / crossing, product, sample.data, timed)


def _median_seconds(work: Callable[[], object]) -> float:
    return statistics.median(timeit.repeat(work, number=1, repeat=ROUNDS))


def pairs_of(sentences: int) -> int:
    return sentences * (sentences - 1) // 2


def both_seconds(rates: Rates, sentences: int) -> tuple[float, float]:
    """Extrapolated seconds of bi-encoder (N encodings, N × N product) and cross-encoder (N(N-1)/2 passes)."""
    product = rates.product_seconds * (sentences / PAPER_SENTENCES) ** 2
    bi = sentences / rates.sentences_per_second + product
    cross = pairs_of(sentences) / rates.pairs_per_second
    return bi, cross


def cost_lines(rates: Rates, sentences: int) -> go.Figure:
    """Seconds against N on logarithmic axes: extrapolated lines, the chosen N, and the paper's two values."""
    counts = [round(count) for count in np.logspace(1, 6, 41)]
    seconds = np.array([both_seconds(rates, count) for count in counts])  # (41, 2)
    points = both_seconds(rates, sentences)
    colours = {"bi-encoder": "blue", "cross-encoder": "orange"}
    figure = go.Figure()
    for column, (name, colour) in enumerate(colours.items()):
        hover = f"%{{x:,}} sentences: %{{y:.3s}} s<extra>{name}</extra>"
        line = seconds[:, column].tolist()
        add_scatter(figure, counts, line, colour, hover, name=name, line_width=3)
        add_scatter(
            figure,
            [sentences],
            [points[column]],
            colour,
            mode="markers",
            marker_size=13,
            showlegend=False,
        )
    add_scatter(
        figure,
        [PAPER_SENTENCES] * 2,
        [PAPER_ENCODE_SECONDS, PAPER_CROSS_SECONDS],
        "grey",
        "%{x:,} sentences: %{y:,} s<extra>the paper</extra>",
        "markers",
        name="the paper, on a V100",
        marker_size=11,
        marker_symbol="diamond-open",
        marker_line_width=2,
    )
    figure.update_xaxes(type="log", dtick=1, tickformat=",")
    figure.update_yaxes(type="log", tickvals=list(UNITS), ticktext=list(UNITS.values()))
    return styled(figure, 360, "sentences N", legend=True)


def describe(rates: Rates, sentences: int) -> Markup:
    """The measured rates; the times for N, extrapolated, and the paper's case."""
    figures = (
        (f"{rates.sentences_per_second:,.0f}", "sentences/s", "bi-encoder, measured"),
        (f"{rates.pairs_per_second:,.0f}", "pairs/s", "cross-encoder, measured"),
    )
    rows = [_row(rates, sentences)]
    if sentences != PAPER_SENTENCES:
        rows.append(_row(rates, PAPER_SENTENCES, ": the paper’s case"))
    rows.append(
        (
            f"{PAPER_SENTENCES:,}: in the paper, V100",
            f"{pairs_of(PAPER_SENTENCES):,}",
            "~5 s",
            "~65 h",
        )
    )
    basis = Markup(
        "the two rates only, on {} sentences and {} pairs of {}, medians of three; {}. "
        "<b>The times of this machine are extrapolated from them</b>"
    )
    return (
        tiles(figures)
        + table(("sentences", "pairs", "bi-encoder", "cross-encoder"), rows)
        + measured(basis.format(SENTENCES, PAIRS, data_label(rates.data), rates.timed))
    )


def _row(rates: Rates, sentences: int, remark: str = "") -> tuple[str, ...]:
    """The cells of a row: the number of sentences with a remark, the number of pairs, both times."""
    bi, cross = both_seconds(rates, sentences)
    return (
        f"{sentences:,}{remark}",
        f"{pairs_of(sentences):,}",
        format_duration(bi),
        format_duration(cross),
    )


def show(context: Context, exponent: float, moment: float) -> Measurement:
    result = measure(context, moment)
    sentences = round(10**exponent)
    return Measurement(cost_lines(result, sentences), describe(result, sentences))


def build() -> Demo:
    with gr.Row():
        exponent = gr.Slider(
            1,
            6,
            4,
            step=0.25,
            label="Sentences, as a power of ten",
            info="4 = 10,000, the paper’s case",
            scale=3,
            elem_id="learn-n",
        )
        again = gr.Button("Measure again", scale=1, min_width=140, elem_id="learn-again")
    # The time at which a measurement was last requested. Its change measures the lesson again.
    moment = gr.State(0.0)
    again.click(time.time, None, moment, **event_options())
    return Demo([exponent, moment], show)
