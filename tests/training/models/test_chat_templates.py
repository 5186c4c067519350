"""A chat template that does not end, or fills the memory, is refused before anybody waits for the model."""

import json
from pathlib import Path

import pytest

from training.errors import InputError
from training.models import chat_templates
from training.models.chat_templates import check_chat_templates

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i * j %}{% endfor %}{% endfor %}"
LARGE = "{{ 'a' * 30000000000 }}"
USUAL = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"


def write(folder: Path, template: str, where: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if where.endswith(".jinja"):
        (folder / where).write_text(template)
    elif where == "named":
        named = [{"name": "default", "template": USUAL}, {"name": "other", "template": template}]
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    else:
        (folder / where).write_text(json.dumps({"chat_template": template}))


@pytest.mark.parametrize(
    "where", ["tokenizer_config.json", "chat_template.json", "chat_template.jinja", "named"]
)
def test_a_template_that_does_not_end_is_refused_wherever_it_is(tmp_path, monkeypatch, where):
    monkeypatch.setattr(chat_templates, "SECONDS", 3.0)
    write(tmp_path / "0_Transformer", ENDLESS, where)
    with pytest.raises(InputError, match="does not end within 3 s"):
        check_chat_templates(tmp_path)


def test_a_template_that_fills_the_memory_is_refused(tmp_path):
    write(tmp_path, LARGE, "chat_template.jinja")
    with pytest.raises(InputError, match="fills the memory"):
        check_chat_templates(tmp_path)


def test_other_templates_are_left_to_transformers(tmp_path):
    check_chat_templates(tmp_path)
    write(tmp_path, USUAL, "tokenizer_config.json")
    write(tmp_path, "{{ raise_exception('no') }}{% broken", "chat_template.jinja")
    check_chat_templates(tmp_path)
