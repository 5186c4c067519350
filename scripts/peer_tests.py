"""Run tests of sentence-transformers with the classes of SBERT Lab: python -m scripts.peer_tests FOLDER

FOLDER is the folder ``tests`` of its repository, at a version near the one that is installed.
Nothing is fetched and nothing in it is changed: the files are copied, and the names that they import
from sentence-transformers are imported from ``sbert_lab`` if it has them. The models of the tests
are not here; all-MiniLM-L6-v2 and minilm-stsb replace them.

Prints the numbers of tests that passed and failed for each file. With --theirs only the models are
replaced: a test that fails then, too, fails for another reason, such as that it needs the Hub.
"""

import argparse
import ast
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from training.sources.resolve import model_folder

FILES = (
    "util/test_retrieval.py",
    "util/test_quantization.py",
    "util/test_hard_negatives.py",
    "sentence_transformer/evaluation/test_binary_classification_evaluator.py",
    "sentence_transformer/evaluation/test_information_retrieval_evaluator.py",
    "sentence_transformer/evaluation/test_label_accuracy_evaluator.py",
    "sentence_transformer/evaluation/test_nanobeir_evaluator.py",
    "sentence_transformer/evaluation/test_paraphrase_mining_evaluator.py",
    "sentence_transformer/evaluation/test_triplet_evaluator.py",
)
# Our names by the names of sentence-transformers.
NAMES = {
    "SentenceTransformer": "Encoder",
    "CrossEncoder": "CrossEncoder",
    "semantic_search": "semantic_search",
    "paraphrase_mining": "paraphrase_mining",
    "community_detection": "community_detection",
    "quantize_embeddings": "quantize_embeddings",
    "cos_sim": "similarity",
    "pytorch_cos_sim": "similarity",
}
ENCODERS = (
    "stsb_bert_tiny_model",
    "static_retrieval_mrl_en_v1_model",
    "paraphrase_distilroberta_base_v1_model",
)
CROSS_ENCODERS = ("reranker_bert_tiny_model",)
FIXTURE = """
@pytest.fixture(scope="session")
def {name}():
    return {model}

"""


class _OurNames(ast.NodeTransformer):
    """Imports the names of `NAMES` from ``sbert_lab``."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        if not (node.module or "").startswith("sentence_transformers"):
            return [node]
        ours = [ast.alias(NAMES[name.name], name.name) for name in node.names if name.name in NAMES]
        theirs = [name for name in node.names if name.name not in NAMES]
        imports: list[ast.stmt] = []
        if ours:
            imports.append(ast.ImportFrom("sbert_lab", ours, 0))
        if theirs:
            imports.append(ast.ImportFrom(node.module, theirs, 0))
        return imports


def conftest(with_ours: bool) -> str:
    """The fixtures of their models: ours by the same names, or theirs from the same folders."""
    if with_ours:
        lines = ["import pytest", "from sbert_lab import CrossEncoder, Encoder"]
        encoder = 'Encoder("all-MiniLM-L6-v2", dtype="float32")'
        cross_encoder = 'CrossEncoder("minilm-stsb")'
    else:
        lines = [
            "import pytest",
            "from sentence_transformers import CrossEncoder, SentenceTransformer",
        ]
        path = str(model_folder("all-MiniLM-L6-v2").path)
        encoder = f"SentenceTransformer({path!r})"
        cross_encoder = f"CrossEncoder({path!r}, num_labels=1)"
    fixtures = [FIXTURE.format(name=name, model=encoder) for name in ENCODERS]
    fixtures += [FIXTURE.format(name=name, model=cross_encoder) for name in CROSS_ENCODERS]
    return "\n".join([*lines, *fixtures])


def run(folder: Path, file: str, with_ours: bool) -> ElementTree.Element:
    """The report of pytest on a file of theirs."""
    with TemporaryDirectory() as temporary:
        tests = Path(temporary) / "tests"
        tests.mkdir()
        for name in ("__init__.py", "utils.py"):
            (tests / name).write_bytes((folder / name).read_bytes())
        (tests / "conftest.py").write_text(conftest(with_ours), encoding="utf-8")
        tree = ast.parse((folder / file).read_text(encoding="utf-8"))
        if with_ours:
            tree = ast.fix_missing_locations(_OurNames().visit(tree))
        (tests / Path(file).name).write_text(ast.unparse(tree), encoding="utf-8")
        report = Path(temporary) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "ignore", "--tb=line"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            *options,
            f"--junit-xml={report}",
            f"tests/{Path(file).name}",
        ]
        offline = {
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        # Failing tests are in the report.
        process = subprocess.run(
            command,
            cwd=temporary,
            env={**os.environ, **offline},
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.is_file():
            raise SystemExit(f"{file}: {process.stdout}{process.stderr}")
        return ElementTree.parse(report).getroot()  # noqa: S314 - a file that pytest has just written


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder tests of sentence-transformers")
    parser.add_argument(
        "--theirs", action="store_true", help="run with the names of sentence-transformers"
    )
    arguments = parser.parse_args()
    print(f"{'':58}passed failed skipped")
    for file in FILES:
        report = run(arguments.folder.expanduser(), file, not arguments.theirs)
        num_passed = 0
        num_skipped = 0
        faults = {}
        for case in report.iter("testcase"):
            fault = case.find("failure")
            if fault is None:
                fault = case.find("error")
            if fault is not None:
                faults[case.get("name", "")] = " ".join(fault.get("message", "").split())
            elif case.find("skipped") is not None:
                num_skipped += 1
            else:
                num_passed += 1
        print(f"{Path(file).name:58}{num_passed:6}{len(faults):7}{num_skipped:8}", flush=True)
        for name, message in faults.items():
            print(f"    {name}: {message[:200]}")


if __name__ == "__main__":
    main()
