"""threshold: finds the similarity from which on two texts match, and what an old threshold becomes."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from sbert_app.commands import options
from sbert_app.commands.evaluate import decision_lines
from sbert_app.services.background.watch import Watch
from sbert_app.services.results.carry import ABOUT_EXAMPLE, EXAMPLE, ModelThreshold, advise
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.data.load import load_data
from training.data.transforms import POSITIVE_FROM
from training.evaluation.match_scores import BEST_F1, PRECISION
from training.models.model import Model
from training.names import ModelName


@options.grouped
def threshold(
    *,
    model: options.ModelOptions,
    was: Annotated[
        str | None,
        Option(
            metavar="NAME@THRESHOLD", help="The model before and its threshold, such as B@0.82."
        ),
    ] = None,
    data: Annotated[
        str,
        Option(
            metavar="NAME_OR_FILE",
            help="Pairs with labels or gold scores; without: the STS benchmark's dev.",
        ),
    ] = EXAMPLE,
    file: options.PairFileOptions,
    precision: Annotated[
        float,
        Option(metavar="SHARE", help="The share of matches among the pairs above the threshold."),
    ] = 0.95,
    match_from: options.MatchFrom = None,
    figure: Annotated[
        Path | None,
        Option(
            metavar="FILE", help="Write precision and recall at each threshold, as an HTML page."
        ),
    ] = None,
    computing: options.Computing,
) -> None:
    """Find the threshold of a model: the similarity from which on two texts match.

    With --was: what the threshold of the model before becomes under this one, by the same share of
    pairs and by the same precision. Any model, endpoints too. Pairs of your own decide; those that
    come with the app show how.
    """
    before = None
    if was is not None:
        before = ModelThreshold.parse(was)
    if match_from is None:
        match_from = POSITIVE_FROM
    criteria = (f"{PRECISION}={precision:g}", BEST_F1)
    home = computing.prepare()
    name = ModelName.parse(model.name).with_pooling(model.pooling)
    with (
        options.input_file(data) as source,
        clean_stdout(),
        ProgressBar("scoring", "sentences") as bar,
    ):
        rows = load_data(file.with_options(source), home, split="test")

        def load(other: ModelName) -> Model:
            # Called with the name of this model and of the model before. Both contain the pooling.
            return options.load_model(replace(model, model=str(other), pooling=None), computing)

        advice = advise(name, rows, load, home, criteria, before, match_from, Watch.of(bar))
    notes = [*rows.notes, *advice.notes]
    if data == EXAMPLE:
        notes.insert(0, ABOUT_EXAMPLE)
    for note in notes:
        print(f"{rows.name}: {note}", file=sys.stderr)
    if figure is not None:
        # Plotly belongs to the extra app, which the other commands do not need.
        from sbert_app.figures.evaluation import by_threshold

        plot = by_threshold(advice.decision.decision, advice.decision.similarity, name)
        plot.write_html(figure, include_plotlyjs=True)
    answer = advice.to_dict()
    # The name of the model contains the pooling.
    text = decision_lines({**answer, "pooling": None})
    if advice.carried_sentence:
        text += f"\n{advice.carried_sentence}"
    print_result(answer, computing.as_json, text)
