"""The HTTP endpoints of runs: ``start_run``, ``run_status``, ``stop_run``, ``list_runs``. Plain JSON in and out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gradio as gr

from sbert_app.pages.api.endpoint import Between, endpoint, register
from sbert_app.pages.server.address import visitor_of
from sbert_app.services.container import Services
from sbert_app.services.runs.estimate import estimate_run
from training.catalogue import DEFAULT_MODEL
from training.trainer.config import SETTINGS, RunConfig


def build(services: Services) -> None:
    """Register the endpoints in the open Blocks."""
    store = services.jobs.store

    def start_run(
        objective: str = "regression",
        train_data: str = "stsb:train",
        eval_data: str = "stsb:dev",
        base: str = DEFAULT_MODEL,
        pooling: str = "",
        concatenation: str = "uv+diff",
        epochs: float = 1,
        max_steps: int = 0,
        batch_size: int = 16,
        learning_rate: float = 0,
        seed: int = 0,
        name: str = "",
        options: dict[str, Any] | None = None,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Queue a training run and return it; follow it with run_status.

        Args:
            {arguments}
            options: any other field of a run, as {{"lora_rank": 8, "matryoshka_dims": [128]}}.
        """
        config = RunConfig.from_dict(
            {
                "objective": objective,
                "train_data": train_data,
                "eval_data": eval_data,
                "base": base,
                "pooling": pooling or None,
                "concatenation": concatenation,
                "epochs": epochs,
                "max_steps": max_steps or None,
                "batch_size": batch_size,
                **({"learning_rate": learning_rate} if learning_rate else {}),
                "seed": seed,
                "name": name,
                **(options or {}),
            }
        )
        estimate_run(services.access.check_run(config), store)
        return services.jobs.start(config, visitor_of(request)).to_json()

    start_run = _as_endpoint(start_run)

    @endpoint(since=Between(0, 2**53))
    def run_status(run_id: str, since: int = 0) -> dict[str, Any]:
        """A run: state, progress, best figures, and its events from number ``since`` on.

        Args:
            run_id: the id that start_run returned.
            since: how many events the caller has already ("events_seen" of the last answer).
        """
        run = store.get(run_id)
        events = store.events(run_id)
        new = list(events[since:]) if since <= len(events) else list(events)
        return {**run.to_json(), "events": new, "events_seen": len(events)}

    @endpoint()
    def stop_run(run_id: str) -> dict[str, Any]:
        """Ask a run to stop: at once if it waits, at its next step if it runs. It can be resumed.

        Args:
            run_id: the id that start_run returned.
        """
        return services.jobs.store.stop(run_id).to_json()

    @endpoint()
    def list_runs() -> list[dict[str, Any]]:
        """All runs, the newest first."""
        return [run.to_json() for run in store.list()]

    for function in (start_run, run_status, stop_run, list_runs):
        register(function, queue=False)


def _as_endpoint(start_run: Callable[..., Any]) -> Callable[..., Any]:
    """With the ranges of `RunConfig`, and its words for the arguments that are fields of it."""
    arguments: list[str] = []
    ranges: dict[str, Any] = {}
    for name, argument in inspect.signature(start_run).parameters.items():
        if name not in SETTINGS:
            continue
        setting = SETTINGS[name]
        words = f"; {', '.join(setting.choices)}" if name == "objective" else ""
        if argument.default in (0, "") and setting.words not in ("", "0"):
            words = f"; {'empty' if setting.range is None else '0'} = {setting.words}"
        arguments.append(f"{name}: {setting.sentence()}{words}.")
        if setting.range is not None:  # 0 stands for what is left out; RunConfig refuses it where it is not
            low = setting.range.low if setting.range.includes_low and not setting.is_optional else 0
            ranges[name] = Between(low, setting.range.high)
    start_run.__doc__ = (start_run.__doc__ or "").format(arguments=f"\n{' ' * 12}".join(arguments))
    return endpoint(**ranges)(start_run)
