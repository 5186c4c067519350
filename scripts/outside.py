"""Libraries are used from the outside: python -m scripts.outside, a part of make lint.

Reports where the product knows the inside of another project:

- in Python, a private module, object or attribute (one with a leading underscore), an attribute
  with two underscores that Python does not document for its users, a change of an imported module
  or class, an import from a module that its library does not document, and a subclass that
  overrides a method that its library does not document;
- in JavaScript, also in the strings of Python, a property that begins with an underscore;
- in CSS, more class names of Gradio or more ``!important`` than the limits allow.

A private attribute counts as the product's own where the same file defines one of that name, unless
it is reached through an import. `ALLOWED` is the whole list of exceptions.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeGuard

ROOT = Path(__file__).parents[1]
PRODUCT = ("training", "sbert_app")
OWN = {*PRODUCT, "sbert_lab", *sys.stdlib_module_names}
PRIVATE = re.compile(r"(?:.*\.)?_[a-zA-Z]\w*")
DUNDER = re.compile(r"__\w+__")
CHANGES = ("setattr", "delattr", "vars")
READS = ("getattr", "hasattr", "setattr", "delattr")
# The documented methods of named tuples, which are private by name alone.
OF_NAMEDTUPLES = {"_replace", "_asdict", "_fields", "_make"}
# Names that Python documents for its users, including some methods that operators and statements call.
DOCUMENTED_DUNDERS = {
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__version__",
    "__file__",
    "__path__",
    "__package__",
    "__cause__",
    "__context__",
    "__dict__",
    "__slots__",
    "__signature__",
    "__annotations__",
    "__future__",
    "__getitem__",
    "__contains__",
    "__init__",
    "__enter__",
    "__exit__",
    "__new__",
    "__setattr__",
    "__init_subclass__",
    "__call__",
    "__iter__",
    "__len__",
    "__eq__",
    "__hash__",
    "__post_init__",
}
# Modules below the top of a package that its documentation names; with a dot at the end, all
# modules below.
DOCUMENTED_MODULES = (
    "accelerate.tracking",
    "accelerate.utils",
    "datasets.exceptions",
    "fastapi.",
    "huggingface_hub.errors",
    "huggingface_hub.utils",
    "mcp.",
    "mteb.",
    "onnxruntime.quantization",
    "openpyxl.",
    "plotly.",
    "py3langid.langid",
    "pyarrow.",
    "pydantic.",
    "ray.",
    "rich.",
    "safetensors.",
    "scipy.",
    "sklearn.",
    "sentence_transformers.",
    "starlette.",
    "tensorflow.",
    "torch.",
    "tqdm.auto",
    "transformers.utils",
    "tokenizers.",
    "transformers.masking_utils",
)
# Methods that subclasses are documented to define, by class; those of Python's data model are free.
DOCUMENTED_METHODS = {
    "torch.nn.Module": {"forward"},
    # A protocol of asyncio.
    "uvicorn.protocols.http.auto.AutoHTTPProtocol": {
        *("connection_made", "data_received", "connection_lost", "pause_writing", "resume_writing")
    },
}
INSIDE_OF_SCRIPTS = re.compile(r"[\w)\]]\??\.(_[a-zA-Z]\w*)|\b(__\w+__)\b")
# Gradio's own classes, which its releases rename. It documents `.gradio-container` and `.dark`.
GRADIO_CLASSES = re.compile(
    r"\.(?:html-container|secondary-wrap|tab-like-container|label-wrap|tab-container|tab-wrapper|checkbox-container"
    r"|wrap-inner|wrap|block|form|tabitem|prose|row|column|hidden|container|reset-button|virtual-row|sm|md|lg|primary"
    r"|nav-holder|show-api|icon|cell-menu-button|contain)(?![\w-])|\[data-testid[^\]]*\]|footer\[[^\]]*\]"
)
MOST_GRADIO_CLASSES = 20
MOST_IMPORTANT = 30


class Licence(NamedTuple):
    """An exception: a file and the first words of a fault, or of code that only a reader recognizes as one."""

    path: str
    words: str
    reason: str
    # What the other project lacks.
    cause: str
    # The condition under which the exception goes.
    until: str


ALLOWED = (
    Licence(
        "training/inference/layers.py",
        "torch.ops.mkldnn.",
        "the packed weights of oneDNN make encoding on a processor twice as fast",
        "PyTorch uses these operators in its own compiled graphs. It gives them no public names.",
        "torch.compile reaches the same speed for sentences of any length",
    ),
    Licence(
        "training/trainer/replica.py",
        "torch._foreach_",
        "one call for all tensors of a model, in each step of training",
        "PyTorch documents these functions under these names only. It has announced public ones, without a date.",
        "torch.foreach exists",
    ),
    Licence(
        "training/inference/fused_bert.py",
        "attention.self.query",
        "the fused layers, which encoding and training are fast by, take the weights of transformers' layers by the "
        "names of their modules; types are checked first, and tests compare the results",
        "The names are those of the tensors in every published model, so that they cannot change. They are part of no "
        "documented interface.",
        "transformers has layers as fast on a processor",
    ),
    Licence(
        "training/trainer/replica.py",
        "scalar_embed_scale",
        "a replica in low precision multiplies the embeddings itself, where a model scales them",
        "A few architectures keep the factor on their embedding module. transformers has no common name for it.",
        "the configuration of every architecture has the factor",
    ),
    Licence(
        "sbert_app/services/maps/projection.py",
        "value.enable_caching()",
        "the first map of each process would wait 27 seconds for the compiler",
        "umap-learn and pynndescent compile most of their functions without numba's cache. The method is the one that "
        "numba's own decorator calls for cache=True.",
        "umap-learn passes cache=True",
    ),
    Licence(
        "sbert_app/services/maps/projection.py",
        "tqdm",
        "the progress of a map crosses from its process to the page by the progress bar of umap-learn",
        "umap-learn has no callback. Its bar is tqdm's, which writes to any file.",
        "umap-learn has a callback",
    ),
    Licence(
        "sbert_app/server/workarounds.py",
        "WholeSteps.call_function",
        "a slow browser loses a part of what a generator yields",
        "Gradio sends each step as edits of the one before, and its page applies them to objects that are not shown "
        "yet. A step cannot be sent whole.",
        "the browser test of Bulk passes without the class",
    ),
    Licence(
        "sbert_app/server/workarounds.py",
        "WholeSteps.handle_streaming_diffs",
        "a slow browser loses a part of what a generator yields",
        "As above: the edits are made in this method.",
        "the browser test of Bulk passes without the class",
    ),
    Licence(
        "sbert_app/server/workarounds.py",
        "WholeSteps.validate_inputs",
        "each call with too few values would be a traceback in the log",
        "Gradio raises the error of a fault for what a visitor has sent.",
        "Gradio answers such a call with a status of 400",
    ),
    Licence(
        "sbert_app/server/workarounds.py",
        "/gradio_api/heartbeat/",
        "a seventh tab of one browser would wait for ever, and work for a page that was left would go on",
        "Each page of Gradio keeps a connection open, and a browser opens six to a host. Gradio has no event for the "
        "end of a page that does not need it.",
        "the server speaks HTTP/2, or Gradio closes the connection",
    ),
    Licence(
        "sbert_app/server/run.py",
        "from uvicorn.protocols.http.auto import AutoHTTPProtocol",
        "a connection that sends no request, or sends it too slowly, is closed",
        "uvicorn takes a protocol class as an option, which its documentation names, and ends no slow header. It does "
        "not document where the class is that it takes by default.",
        "uvicorn has a limit of time for headers",
    ),
    Licence(
        "sbert_app/services/background/ray_cluster.py",
        "ray_current_cluster",
        "without it Ray waits more than a minute for a cluster that has ended",
        "Ray writes the address of the latest cluster into this file and connects to it. It has no option for the time "
        "that it tries.",
        "ray.init takes a timeout",
    ),
    Licence(
        "training/sources/hub_dataset.py",
        "from datasets.packaged_modules.cache.cache import Cache",
        "a data set that was downloaded opens at once where the Hub cannot be reached",
        "datasets falls back on this class after its requests have failed, which takes a minute on some networks. Its "
        "offline mode is a switch of the whole process, read when it is imported.",
        "load_dataset_builder takes local_files_only",
    ),
    Licence(
        "training/sources/hub.py",
        "from huggingface_hub.file_download import repo_folder_name",
        "the size of a download that was interrupted is counted in the folder of its repository",
        "The library documents the layout of its cache. The function that makes the name of a folder is not among its "
        "public ones.",
        "huggingface_hub exports it",
    ),
    Licence(
        "training/trainer/cross_encoder.py",
        "from transformers.modeling_layers import GenericForSequenceClassification",
        "a head that reads the last token reads padding while it is trained",
        "transformers gives decoders this head by one class. No attribute tells such a model from others.",
        "a model says which token its head reads",
    ),
    Licence(
        "assets/*.js",
        "__type__",
        "a script changes a property of a component, such as the open tab, and leaves others as they are",
        "Gradio documents updates as an object of Python, gr.update. A script has no function that makes one.",
        "Gradio documents updates for scripts",
    ),
    Licence(
        "sbert_app/pages/components/report.py",
        "__type__",
        "a button appears with what it reports",
        "As above.",
        "Gradio documents updates for scripts",
    ),
    Licence(
        "training/evaluation/mteb_tasks.py",
        "task.data_loaded",
        "the tasks on STS run without the Hub, on the data of the home folder",
        "A task of mteb fetches its data from the Hub. These are the attributes that its own method sets.",
        "mteb takes data as an argument",
    ),
)


def faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the words of each fault of a Python file."""
    nodes = list(ast.walk(tree))
    # The names that the file imports, from libraries and from the product itself.
    library_names: set[str] = set()
    own_names = {"self", "cls", "super"}
    # The functions, variables and attributes that the file defines.
    defined = set(OF_NAMEDTUPLES)
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            if is_foreign(node):
                library_names |= names
            else:
                own_names |= names
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif is_store(node) and root_of(node) in ("self", "cls"):
            defined.add(node.attr)
    for node in nodes:
        root = root_of(node)
        is_fault = False
        if isinstance(node, ast.Import | ast.ImportFrom) and is_foreign(node):
            is_private = any(map(PRIVATE.fullmatch, imported_names(node)))
            is_fault = is_private or not all(map(is_documented, modules_of(node)))
        elif isinstance(node, ast.Attribute):
            is_library = root in library_names
            is_own = root in own_names or (node.attr in defined and not is_library)
            is_private = PRIVATE.fullmatch(node.attr) is not None and not is_own
            is_change = is_library and is_store(node)
            is_fault = is_private or is_change or is_hidden(node.attr)
        elif isinstance(node, ast.Call):
            # setattr(object, name, …) and the like
            is_change = root in CHANGES and root_of(*node.args[:1]) in library_names
            name = text_of(node.args[1]) if root in READS and len(node.args) > 1 else ""
            is_private = PRIVATE.fullmatch(name) is not None and name not in defined
            is_fault = is_change or is_private or is_hidden(name)
        elif isinstance(node, ast.Constant) and "=>" in text_of(node):
            # A function of JavaScript.
            for _, words in script_faults(text_of(node)):
                yield node.lineno, words
        if is_fault:
            yield getattr(node, "lineno", 1), ast.unparse(node)
    yield from overrides(nodes)


def overrides(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The methods of subclasses of foreign classes that replace one that the library does not document."""
    nodes = list(nodes)
    # The full names of imported objects.
    origins: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and is_foreign(node):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                origins[alias.asname or alias.name.split(".")[0]] = prefix + alias.name
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            # Without type arguments, as in Base[int].
            name, *rest = ast.unparse(base).partition("[")[0].split(".")
            if name not in origins:
                continue
            base_name = ".".join((origins[name], *rest))
            undocumented = methods_of(base_name) - DOCUMENTED_METHODS.get(base_name, set())
            for part in node.body:
                if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if part.name in undocumented:
                    yield part.lineno, f"{node.name}.{part.name}"


def methods_of(class_name: str) -> set[str]:
    """The members of a class, without those of Python's data model."""
    module, _, name = class_name.rpartition(".")
    members = set(dir(getattr(import_module(module), name)))
    return members - set(dir(object)) - DOCUMENTED_DUNDERS


def is_foreign(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether a statement imports from a third-party package."""
    name = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    is_relative = getattr(node, "level", 0) > 0
    return not is_relative and (name or "").split(".")[0] not in OWN


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules and the names that a statement imports."""
    return [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]


def modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that a statement imports, or imports from."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names]


def is_documented(module: str) -> bool:
    """Whether a module is the top of a package, or one that its documentation names."""
    is_top = "." not in module
    prefixes = tuple(name for name in DOCUMENTED_MODULES if name.endswith("."))
    return is_top or module in DOCUMENTED_MODULES or module.startswith(prefixes)


def is_hidden(name: str) -> bool:
    """Whether a name has two underscores at both ends and is not for users."""
    return bool(DUNDER.fullmatch(name)) and name not in DOCUMENTED_DUNDERS


def text_of(node: ast.AST) -> str:
    """The value of a string; "" for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_store(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether a node sets or deletes an attribute."""
    return isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)


def root_of(node: ast.AST | None = None) -> str:
    """The name that a chain of attributes and calls begins with: ``gr`` for ``gr.context.Context.block``."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def script_faults(text: str) -> Iterator[tuple[int, str]]:
    """The line and the words of each private property in JavaScript."""
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("// ")[0]
        for match in INSIDE_OF_SCRIPTS.finditer(code):
            yield number, match[1] or match[2]


def style_faults(styles: str) -> Iterator[str]:
    """A sentence for each limit that the style sheets exceed."""
    rules = re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL)
    num_classes = len(GRADIO_CLASSES.findall(rules))
    num_important = rules.count("!important")
    if num_classes > MOST_GRADIO_CLASSES:
        yield f"assets/*.css: {num_classes} mentions of Gradio's own classes, at most {MOST_GRADIO_CLASSES}"
    if num_important > MOST_IMPORTANT:
        yield f"assets/*.css: {num_important} !important, at most {MOST_IMPORTANT}"


def is_allowed(path: str, words: str) -> bool:
    licences = [licence for licence in ALLOWED if fnmatchcase(path, licence.path)]
    return any(words.startswith(licence.words) for licence in licences)


def main() -> int:
    """Prints the faults. Returns 1 if there are some."""
    assets = ROOT / "assets"
    faults_by_file: dict[Path, Iterator[tuple[int, str]]] = {}
    for package in PRODUCT:
        for file in sorted((ROOT / package).rglob("*.py")):
            faults_by_file[file] = faults(ast.parse(file.read_text("utf-8")))
    for file in sorted(assets.glob("*.js")):
        faults_by_file[file] = script_faults(file.read_text("utf-8"))
    sentences = []
    for file, faults_of_file in faults_by_file.items():
        path = file.relative_to(ROOT).as_posix()
        for line, words in faults_of_file:
            if not is_allowed(path, words):
                sentences.append(f"{path}:{line}: {words}")
    styles = [file.read_text("utf-8") for file in sorted(assets.glob("*.css"))]
    sentences += style_faults("\n".join(styles))
    for sentence in sentences:
        print(sentence)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
