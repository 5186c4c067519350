"""home | home backup FILE | home restore FILE: show the home folder, and back up people's work as one archive."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from sbert_app.commands import options
from sbert_app.formats import format_bytes
from sbert_app.services.runs.backup import back_up, files_of
from sbert_app.services.runs.backup import restore as restore_work
from sbert_app.services.store import HOME, home_entry
from sbert_app.terminal import print_result

home = typer.Typer(
    help="Show what the home folder holds; back up and restore it.", rich_markup_mode=None
)

Archive = Annotated[Path, Argument(metavar="FILE", help="A ZIP file.")]


@home.callback(invoke_without_command=True)
def default(
    context: typer.Context, home: options.Home = None, as_json: options.Json = False
) -> None:
    """Sizes of what is in the home folder, and what of it can be deleted."""
    if context.invoked_subcommand is not None:
        # Options before the subcommand are passed on to it.
        context.default_map = {context.invoked_subcommand: {"home": home, "as_json": as_json}}
        return
    home_path = options.prepare(home)
    sizes = dict.fromkeys((entry.name for entry in HOME), 0)
    for file in files_of(home_path):
        entry = home_entry(file.relative_to(home_path).as_posix())
        if entry is not None:
            sizes[entry.name] += file.stat().st_size
    lines = [str(home_path)]
    for is_work, title in (
        (True, "people's work: home backup FILE saves it"),
        (False, "can be deleted"),
    ):
        group = [entry for entry in HOME if entry.is_work == is_work]
        size = sum(sizes[entry.name] for entry in group)
        lines.append(f"{title}, {format_bytes(size)}")
        for entry in group:
            lines.append(f"  {format_bytes(sizes[entry.name]):>9}  {entry.name:17} {entry.what}")
    entries = []
    for entry in HOME:
        entries.append(
            {"name": entry.name, "bytes": sizes[entry.name], "can_be_deleted": not entry.is_work}
        )
    print_result({"home": str(home_path), "kept": entries}, as_json, "\n".join(lines))


@home.command()
def backup(file: Archive, home: options.Home = None, as_json: options.Json = False) -> None:
    """Write people's work into a new ZIP file: runs, experiments, projects, uploads that runs need.

    Before version 1.0 a later version may not read these runs: also write the models that you need
    by runs export.
    """
    saved = back_up(options.prepare(home), file.expanduser())
    for problem in saved.left_out:
        print(f"error: {problem}; it is not in the backup", file=sys.stderr)
    for run in saved.at_work:
        sentence = f"run {run} is at work: it is saved without its checkpoint and model"
        print(sentence, file=sys.stderr)
    result = {"file": str(file), **saved._asdict()}
    print_result(result, as_json, f"{saved.files:,} files are in {file}")
    if saved.left_out:
        raise typer.Exit(1)


@home.command()
def restore(file: Archive, home: options.Home = None, as_json: options.Json = False) -> None:
    """Restore what the home folder lacks from a backup. What is there stays as it is."""
    restored, existing = restore_work(options.prepare(home), file.expanduser())
    for name in existing:
        print(f"{name} was there already and stays as it is", file=sys.stderr)
    sentence = f"restored {len(restored):,}, and {len(existing):,} were there already"
    print_result({"file": str(file), "restored": restored, "there": existing}, as_json, sentence)
