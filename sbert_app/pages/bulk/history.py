"""The jobs that this browser has started: their ids are kept in the browser, everything else in the home folder."""

from __future__ import annotations

from collections.abc import Iterable

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_time
from sbert_app.pages.components.templates import render
from sbert_app.services.files.jobs import ScoreJob, ScoreJobs
from training.errors import InputError

MOST = 20  # jobs in the list
# The address names the job that is shown. A state has no value in the browser: the status line has the id.
REMEMBER_JOB = """() => {
  const status = document.querySelector("#status [data-job]");
  const job = status ? status.dataset.job : "";
  const url = window.location.pathname + (job ? "?job=" + encodeURIComponent(job) : "");
  if (status && url !== window.location.pathname + window.location.search) window.history.replaceState(null, "", url);
}"""


def state() -> gr.BrowserState:
    """The ids, the newest first. A fixed secret: what is stored must be readable after a restart of the app."""
    return gr.BrowserState([], storage_key="sbert-lab-bulk-jobs", secret="sbert-lab")  # noqa: S106 - hides nothing


def existing(jobs: ScoreJobs, known: Iterable[str]) -> list[ScoreJob]:
    """Those that are still kept, each once."""
    found = []
    for job_id in list(dict.fromkeys(known))[:MOST]:
        try:
            found.append(jobs.get(str(job_id)))
        except InputError:
            continue
    return found


def table(jobs: list[ScoreJob]) -> Markup:
    """The list; empty where there is none."""
    rows = [
        {"id": job.id, "source": job.source, "state": job.state, "time": format_time(job.created), "model": job.model}
        for job in jobs
    ]
    return render("bulk/templates/history.html", jobs=rows) if rows else Markup()
