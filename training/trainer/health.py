"""Warnings about a run that learns nothing, by the figures that it writes itself."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

# Steps before the first warning, and a difference of losses that is no difference.
MIN_STEPS, TOLERANCE = 20, 0.005


def warnings(events: Sequence[dict[str, Any]]) -> list[str]:
    """The warnings about a run so far, a sentence each with the next thing to look at, by its events.

    They are about the second half of its training steps, so that a slow beginning is none. The loss of guessing is
    that of the objective (`training.objectives.base.Objective.guess`).
    """
    steps = [event for event in events if event["kind"] == "train" and event["step"] > 1]
    if not steps or steps[-1]["step"] < MIN_STEPS:
        return []
    half = [event for event in steps if 2 * event["step"] > steps[-1]["step"]]
    running: dict[str, Any] = next((event for event in events if event.get("state") == "running"), {})
    guess, loss, sentences = running.get("guess"), fmean(event["loss"] for event in half), []
    if all(event["lr"] == 0 for event in half):
        sentences.append(
            "The learning rate is 0, so that nothing is learned: look at the schedule, and at the number of steps that "
            "it was made for"
        )
    elif all(event.get("gradient_norm") == 0 for event in half):
        sentences.append(
            "The gradients are 0, so that nothing is learned: look at whether the loss depends on the vectors, and "
            "whether it has reached 0 already"
        )
    if guess is not None and loss > guess - TOLERANCE:
        sentences.append(
            f"The loss, {loss:.3f}, is not below {guess:.3f}, that of guessing: look at the learning rate, at the "
            "labels, and at whether the base knows the words"
        )
    return sentences
