"""Assemble the folder of a Hugging Face Space: python -m scripts.make_space FOLDER

Then: hf upload my-name/sbert-lab FOLDER --repo-type space. It is a Space of the kind "docker" on
the free CPU. ZeroGPU does not fit, because it lends its GPU to functions of a Gradio process, while
runs are executed by processes of their own.
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (
    "pyproject.toml",
    "hatch_build.py",
    "CHANGELOG.md",
    "LICENSE",
    "THIRD_PARTY.md",
    "requirements.lock",
)
PACKAGE = (*FILES, "sbert_lab", "training", "sbert_app", "assets")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "screenshots")


def make_space(folder: Path) -> list[str]:
    """Write the Space's files into a new folder. Returns their names."""
    folder.mkdir(parents=True)
    for name in PACKAGE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=LEFT_OUT)
        else:
            shutil.copyfile(source, folder / name)
    for file in (ROOT / "deploy/space").iterdir():
        shutil.copyfile(file, folder / file.name)
    return sorted(entry.name for entry in folder.iterdir())


if __name__ == "__main__":
    print(*make_space(Path(sys.argv[1])), sep="\n")
