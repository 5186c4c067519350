"""Chat templates in a model's folder are programs. They are tried before sentence-transformers opens the model.

transformers renders them in a sandbox of jinja2, which limits neither time nor memory. A template
that does not end would block everybody who opens a model. So each is first rendered in a separate
process, which can be killed.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from training.errors import InputError
from training.models.files import read_object

# A template takes a few milliseconds. Python takes seconds to start on a busy machine.
SECONDS = 20.0
FILES = ("tokenizer_config.json", "chat_template.json", "*.jinja")
# Renders a template, in an environment with the options that transformers uses. The exit code is 1
# if it fills the memory, which is limited to 2 GB where the system can limit it (not on Windows).
# transformers reports other mistakes itself.
PROBE = """
import sys
from jinja2.sandbox import ImmutableSandboxedEnvironment
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
except (ImportError, ValueError):
    pass
messages = [{"role": role, "content": "a"} for role in ("system", "query", "document", "user")]
environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
)
try:
    template = environment.from_string(sys.stdin.buffer.read().decode("utf-8", "replace"))
    template.render(messages=messages, add_generation_prompt=True)
except MemoryError:
    sys.exit(1)
except Exception:
    pass
"""


def check_chat_templates(folder: Path) -> None:
    """Raises InputError if a chat template below ``folder`` does not end, or fills the memory."""
    for template in sorted(set(_templates(folder))):
        # -I leaves out the modules of the working directory and of PYTHONPATH.
        command = [sys.executable, "-I", "-c", PROBE]
        try:
            process = subprocess.run(command, input=template.encode(), timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise InputError(
                f"the chat template of {folder} does not end within {SECONDS:g} s; remove it"
            ) from None
        # `PROBE` exits with 1 if the memory is full. The code is negative if the system has killed
        # the process, which also happens for lack of memory.
        if process.returncode != 0:
            raise InputError(f"the chat template of {folder} fills the memory; remove it")


def _templates(folder: Path) -> Iterator[str]:
    """Yields the texts of all chat templates in the files below ``folder``."""
    for pattern in FILES:
        for file in folder.rglob(pattern):
            if file.suffix == ".jinja":
                yield file.read_text(encoding="utf-8", errors="replace")
                continue
            value = read_object(file, {}).get("chat_template")
            # A list has several templates, each with a name.
            templates = value if isinstance(value, list) else [{"template": value}]
            for item in templates:
                text = item.get("template") if isinstance(item, dict) else None
                if isinstance(text, str):
                    yield text
