"""models: the models that can be named, and which of them are on this machine."""

from __future__ import annotations

from typing import Any

from sbert_app.commands import options
from sbert_app.formats import format_bytes
from sbert_app.terminal import print_result
from training.catalogue import BASELINES, BM25, CROSS_ENCODERS, DOWNLOADS, ENCODERS, TFIDF, WORD_ENCODERS

ALWAYS = (TFIDF, BM25)  # have no weights


def models(home: options.Home = None, as_json: options.Json = False) -> None:
    """List the models that can be named.

    They are built in, in the home folder, or of runs. Any model of the Hub can be named, too.
    """
    place = options.prepare(home, offline=False)
    from sbert_app.services.models.cache import ModelCache
    from sbert_app.services.runs.store import RunStore
    from sbert_app.services.store.temp_folder import folder_size

    cache = ModelCache(place)
    kinds = dict.fromkeys(ENCODERS, "bi-encoder") | dict.fromkeys(CROSS_ENCODERS, "cross-encoder")
    kinds |= dict.fromkeys(BASELINES, "baseline") | {BM25: "baseline"} | dict.fromkeys(WORD_ENCODERS, "random weights")
    place_of = place / "models"
    folders = [each.parent for depth in ("*", "*/*") for each in place_of.glob(f"{depth}/modules.json")]
    own = {str(folder.relative_to(place_of)): folder_size(folder) for folder in sorted(folders)}
    kinds |= {name: "in the home folder" for name in own if name not in kinds}
    found: list[dict[str, Any]] = []
    for name, kind in kinds.items():
        here = name in ALWAYS or cache.is_here(name)
        found.append({"name": name, "kind": kind, "here": here, "bytes": own.get(name)})
    for run in RunStore(place).list():
        if run.has_model:
            size = folder_size(run.folder / "model")
            found.append({"name": f"run:{run.id}", "kind": "run", "here": True, "bytes": size, "called": run.name})
    lines = []
    for each in found:
        takes = (
            format_bytes(each["bytes"]) if each["bytes"] else "" if each["here"] else DOWNLOADS.get(each["name"], "")
        )
        state = "here" if each["here"] else "to be fetched"
        lines.append(f"{each['name']:36} {each['kind']:18} {state:14} {takes:>8}  {each.get('called', '')}".rstrip())
    lines.append("Any model of the Hub (org/name), folder and endpoint can be named as well.")
    print_result({"models": found}, as_json, "\n".join(lines))
