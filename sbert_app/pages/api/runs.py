"""The HTTP endpoints of runs: ``start_run``, ``run_status``, ``stop_run``, ``list_runs``. Plain JSON in and out."""

from __future__ import annotations

from typing import Any

import gradio as gr

from sbert_app.pages.api.arguments import register
from sbert_app.pages.api.endpoint import Between, endpoint, visitor_of
from sbert_app.services.container import Services
from sbert_app.services.runs.estimate import estimate_run
from training.registry import DEFAULT_MODEL
from training.trainer.config import RunConfig


def build(services: Services) -> None:
    """Register the endpoints in the open Blocks."""
    store = services.jobs.store

    @endpoint(
        epochs=Between(1e-6, 1_000),
        max_steps=Between(0, 10_000_000),
        batch_size=Between(1, 65_536),
        learning_rate=Between(0, 1),
        seed=Between(0, 2**32 - 1),
    )
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
            objective: classification, regression, cosent, angle, contrastive, triplet, mnrl, simcse, mse, margin-mse.
            train_data: a named set, as stsb:train or snli+mnli.
            eval_data: a named set to measure on; empty = random pairs only.
            base: what to start from: a model, run:<id>, a Hub id, scratch:6x384, scratch:bilstm, scratch:dan.
            pooling: mean, max or cls; empty = the base's own.
            concatenation: of classification: uv, diff, mul, joined by +.
            epochs: passes over the training data.
            max_steps: optimiser steps; 0 = as many as the epochs take.
            batch_size: pairs (or triplets) per step.
            learning_rate: the peak learning rate; 0 = 2e-5, of scratch:bilstm and scratch:dan 1e-3.
            seed: the random seed.
            name: what to call the run.
            options: any other field of a run, as {"lora_rank": 8, "teacher": "minilm-stsb", "matryoshka_dims": [128]}.
        """
        config = RunConfig.from_dict(
            {
                "objective": objective,
                "train_data": train_data,
                "eval_data": eval_data or None,
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
        return services.jobs.stop(run_id).to_json()

    @endpoint()
    def list_runs() -> list[dict[str, Any]]:
        """All runs, the newest first."""
        return [run.to_json() for run in store.list()]

    for function in (start_run, run_status, stop_run, list_runs):
        register(function, queue=False)
