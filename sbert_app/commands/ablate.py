"""ablate: varies one setting and measures its effect by a grid of runs, one after another or on Ray.

The sweep is stored in the home folder, so the Ablation page shows it and its runs. After Ctrl-C,
``ablate --resume ID`` executes the remaining runs.
"""

import sys
from typing import Annotated, Any

import typer
from typer import Option

from sbert_app.commands import options
from sbert_app.services.background.ray_cluster import RayCluster
from sbert_app.services.background.watch import RESUMABLE, State
from sbert_app.services.experiments.ablations import ABLATIONS, VariantRow, rank_variants
from sbert_app.services.experiments.experiment import SWEEP, Experiment, Experiments, new_sweep
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.results.results import Ranking
from sbert_app.services.runs.on_ray import executor
from sbert_app.services.runs.store import RunStore
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.errors import InputError, StoppedError


@options.grouped
def ablate(
    preset: Annotated[
        str | None, Option(metavar="|".join(ABLATIONS), help="What is varied.")
    ] = None,
    *,
    seeds: Annotated[int, Option(metavar="N", help="How many runs each variant gets.")] = 3,
    max_steps: Annotated[
        int | None, Option(metavar="N", help="Optimiser steps of each run. [one epoch]")
    ] = None,
    base: Annotated[str | None, Option(metavar="NAME", help="What each run starts from.")] = None,
    train_data: Annotated[
        str | None, Option(metavar="NAME_OR_FILE", help="Learn from. [as the preset says]")
    ] = None,
    file: options.FileOptions,
    engine: options.EngineName = None,
    address: options.Address = None,
    resume: Annotated[
        str | None, Option(metavar="ID", help="Resume this sweep with its own settings.")
    ] = None,
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Measure an ablation over several seeds, with a paired test.

    Prints mean ± sd and 95% intervals beside the paper's figures.
    """
    home_path = options.prepare(home, offline)
    sweeps = Experiments(RunQueue(RunStore(home_path)))
    with clean_stdout():
        cluster = options.cluster_of(home_path, engine, address)
        if resume:
            sweep_id = resume
        elif preset is None:
            raise InputError(f"name what is varied with --preset {'|'.join(ABLATIONS)}")
        else:
            settings: dict[str, Any] = {}
            if max_steps is not None:
                settings["max_steps"] = max_steps
            if base is not None:
                settings["base"] = base
            if train_data is not None or file.are_given:
                # Raises InputError if there are options of a file, but no file.
                settings["train_data"] = file.data_name(train_data or "", "--train-data")
            record = new_sweep(preset, seeds, settings)
            sweep_id = sweeps.create(record).id
        if sweeps.get(sweep_id).record.kind != SWEEP:
            raise InputError(f"{sweep_id} is not a sweep: resume its runs with runs resume")
        print(f"sweep {sweep_id}", file=sys.stderr)
        sweep = run_experiment(sweeps, sweep_id, cluster, "ablate")
    ranking = rank_variants(sweep.rows)
    result = {
        "id": sweep_id,
        "preset": sweep.record.name,
        "state": sweep.state,
        "seeds": sweep.seeds,
        "settings": sweep.record.changes,
        "rows": [row.to_json() for row in sweep.rows],
        "ranking": ranking.to_json(),
        "runs": {f"{plan.label}/{plan.seed}": plan.run for plan in sweep.record.runs},
    }
    print_result(result, as_json, _table(sweep, ranking))
    if sweep.reasons:
        failures = f"{sweep.counts[State.FAILED]} runs failed: {'; '.join(sweep.reasons)}"
        print(f"error: {failures}", file=sys.stderr)
        raise typer.Exit(1)


def run_experiment(
    experiments: Experiments, experiment_id: str, cluster: RayCluster | None, command: str
) -> Experiment:
    """Executes the remaining runs of an experiment, and shows the progress of each.

    A signal to end raises StoppedError, which says how ``command`` resumes the experiment. A run
    that is training writes its checkpoint first; a run that is still loading its model does not.
    """
    execute = executor(cluster)
    store = experiments.store
    ids_in_training: set[str] = set()
    stop_error = StoppedError(f"resume it with: {command} --resume {experiment_id}")

    def is_stopped_at_once() -> bool:
        """Whether a signal raises KeyboardInterrupt at once, and does not only set ``should_end``."""
        # Runs on Ray are executed in threads, which check ``should_end`` themselves.
        return cluster is None and not ids_in_training

    # This is called inside the block below, which defines ``should_end``.
    def execute_run(run_id: str) -> None:
        """Executes a run, unless a signal has come, and prints its outcome in a line."""
        if should_end():
            return
        run = store.get(run_id)
        with ProgressBar(run.name, "steps") as bar:

            def show_progress(event: dict[str, Any]) -> None:
                if event.get("state") == State.RUNNING:
                    ids_in_training.add(run_id)
                # On Ray, runs are executed at the same time, and their bars would mix.
                elif event["kind"] == "train" and cluster is None:
                    bar(event["step"], event["steps"])

            # The runs of this experiment are not queued. Such a run counts as stopped, so it is
            # resumable.
            result = execute(
                store, run_id, on_event=show_progress, should_end=should_end, states=RESUMABLE
            )
        ids_in_training.discard(run_id)
        line = f"{run.name}: {result.status}"
        final = result.final or {}
        if final.get("spearman") is not None:
            line += f", ρ {100 * final['spearman']:.2f}"
        elif final.get("undefined"):
            line += f", ρ {final['undefined']}"
        print(line, file=sys.stderr)

    num_parallel = cluster.room() if cluster else 1
    with stop_on_signal(is_stopped_at_once) as should_end:
        try:
            experiment = experiments.run_here(experiment_id, execute_run, num_parallel)
        except KeyboardInterrupt:
            raise stop_error from None
    if should_end() and experiment.can_resume:
        raise stop_error
    return experiment


def _table(sweep: Experiment, ranking: Ranking) -> str:
    """Returns the table of a sweep, a line for each variant, and the variants that may be the best."""
    title = f"{sweep.ablation.title}: Spearman ρ ×100 on STSb dev after the last step"
    head = f"{'':28}{'before':>8}{'mean ± sd':>16}{'95% interval':>18}{'paper':>8}  against the default"
    lines = [f"{sweep.id}: {sweep.state}", title, head, *map(_line, sweep.rows)]
    if ranking.is_known:
        tied = ", ".join(standing.name for standing in ranking.standings if standing.tied)
        lines.append(
            f"cannot be told apart from the best (Holm’s procedure over all pairs): {tied}"
        )
    return "\n".join(lines)


def _line(row: VariantRow) -> str:
    """Returns a variant in one line: ρ before and after training, the paper's ρ, and the paired test."""
    before = "" if row.before is None else f"{row.before:.2f}"
    paper = "" if row.paper is None else f"{row.paper:.2f}"
    mean = ""
    interval = ""
    summary = row.summary
    if summary is not None:
        mean = f"{summary.mean:.2f}"
        if summary.deviation is not None:
            mean += f" ± {summary.deviation:.2f}"
        if summary.low is not None:
            interval = f"{summary.low:.2f} to {summary.high:.2f}"
    verdict = ""
    if row.is_default:
        verdict = "the default"
    elif row.against is not None:
        verdict = row.against.words
        if row.against.p is not None:
            verdict += f" (p = {row.against.p:.3g})"
    return f"{row.label[:27]:28}{before:>8}{mean:>16}{interval:>18}{paper:>8}  {verdict}"
