"""The chat templates of a model's folder are programs; they are tried before a model with one is opened.

transformers renders them in a sandbox of jinja2, which bounds neither time nor memory. A template that does not end
would hold up whoever opens a model meanwhile, so each is rendered once in a process of its own that can be ended.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from training.errors import InputError
from training.models.files import read_object

# A template takes a few milliseconds, and Python on a busy machine seconds to start.
SECONDS = 20.0
FILES = ("tokenizer_config.json", "chat_template.json", "*.jinja")
# Reads a template; the exit code is 1 if it fills the memory. What else goes wrong is for transformers to tell.
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
    """InputError if a chat template below ``folder`` does not end, or fills the memory."""
    for template in sorted(set(_templates(folder))):
        command = [sys.executable, "-I", "-c", PROBE]
        try:
            code = subprocess.run(command, input=template.encode(), timeout=SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            raise InputError(f"the chat template of {folder} does not end within {SECONDS:g} s; remove it") from None
        if code != 0:
            raise InputError(f"the chat template of {folder} fills the memory; remove it")


def _templates(folder: Path) -> Iterator[str]:
    """The texts of the templates of all modules."""
    for pattern in FILES:
        for file in folder.rglob(pattern):
            if file.suffix == ".jinja":
                yield file.read_text(encoding="utf-8", errors="replace")
                continue
            value = read_object(file, {}).get("chat_template")
            named = value if isinstance(value, list) else [{"template": value}]
            for item in named:
                text = item.get("template") if isinstance(item, dict) else None
                if isinstance(text, str):
                    yield text
