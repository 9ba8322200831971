"""Rules of the house that no linter knows: one noun a file, a name for one thing, wiring that can be seen."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ottla"
ARCHITECTURE = Path(__file__).parent.parent / "docs" / "ARCHITECTURE.md"
MOST_LINES = 500

LONG_FILES = {
    "broker/config/definitions.py": "a table of settings",
    "records/codec.py": "a compiled module: rows, columns and records share its C types",
    "wire/fast_path.py": "a compiled module: reading and writing share its C types",
}
SAME_NAME = {
    ("client", "Admin"): "the same, for callers without a loop",
    ("client", "BatchReader"): "the same, for callers without a loop",
    ("client", "Consumer"): "the same, for callers without a loop",
    ("client", "Producer"): "the same, for callers without a loop",
    ("client", "Reader"): "the same, for callers without a loop",
    ("client", "Transaction"): "the same, for callers without a loop",
    ("replica", "Event"): "what happens to the machine of the module",
    ("replica", "Follower"): "a follower itself, and what its leader knows of it",
}
DICTIONARY_LOOKUPS = {
    "client/errors.py": "errors are copied and pickled with all they carry, whatever their constructors take",
}
CALLBACKS_SET_FROM_AFAR = {
    "testing/simulated_system.py": "a simulated worker stands still for as long as the simulation says",
    "testing/simulation/network.py": "a simulated connection finds its listener when it gets there",
    "testing/simulation/store.py": "a simulated worker stands still while its machine is cut off",
}


@functools.cache
def sources() -> list[tuple[str, str, ast.Module]]:
    """Names, texts and syntax trees of all files."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        found.append((path.relative_to(SOURCE).as_posix(), text, ast.parse(text)))
    return found


def test_a_file_is_no_longer_than_one_noun_needs() -> None:
    found = {name for name, text, _ in sources() if text.count("\n") > MOST_LINES}
    assert found <= LONG_FILES.keys()


def test_a_class_name_stands_once_in_a_room() -> None:
    """Parts of messages have Kafka's names, which belong to their message; so has a private class to its file."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, _, tree in sources():
        if not name.startswith("wire/messages/"):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[name.split("/")[0], node.name].append(name)
    twice = {place: files for place, files in places.items() if len(files) > 1}
    assert twice.keys() <= SAME_NAME.keys(), twice


def test_nobody_looks_into_a_dictionary_for_what_has_been_made() -> None:
    found = {
        name
        for name, _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "__dict__"
    }
    assert found <= DICTIONARY_LOOKUPS.keys()


def test_nobody_asks_an_object_what_it_has_made_of_itself() -> None:
    """A state says so, or None does."""
    asked = [
        f"{name}:{node.lineno}"
        for name, _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("hasattr", "getattr")
        if ast.unparse(node.args[0]) == "self" and isinstance(node.args[1], ast.Constant)
    ]
    assert asked == []


def test_no_callback_is_set_as_an_attribute_from_afar() -> None:
    """It is given to the constructor, or to a method that says what it is for."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, _, tree in sources():
        for owner in ast.walk(tree):
            if isinstance(owner, ast.ClassDef):
                methods = {
                    node.name for node in owner.body if isinstance(node, ast.FunctionDef) if not _is_property(node)
                }
                for node in ast.walk(owner):
                    if isinstance(node, ast.Assign) and _is_callback(node.value, methods):
                        found[name] += [ast.unparse(node) for target in node.targets if _is_of_another(target)]
    assert {name for name, lines in found.items() if lines} <= CALLBACKS_SET_FROM_AFAR.keys(), found


def test_the_page_of_the_house_names_what_is_there() -> None:
    text = ARCHITECTURE.read_text()
    house = text.partition("```\n")[2].partition("```")[0]
    for folder in (SOURCE, SOURCE / "broker"):
        packages = {path.parent.name for path in folder.glob("*/__init__.py")}
        assert packages <= set(re.findall(r"(\w+)/ ", house))
    table = text.partition("| file in log/ |")[2].partition("\n\n")[0]
    named = {name.strip("/ ") for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in row.split(",")}
    assert {path.stem for path in (SOURCE / "log").glob("[!_]*")} == named - {"---"}
    rooms = "|".join(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    for path in re.findall(rf"`((?:{rooms})/[\w/]+)`", text):
        assert (SOURCE / path).is_dir() or (SOURCE / f"{path}.py").is_file(), path


def _is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def _is_callback(value: ast.expr, methods: set[str]) -> bool:
    is_own_method = (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id == "self"
        and value.attr in methods
    )
    is_partial = isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "partial"
    return is_own_method or is_partial or isinstance(value, ast.Lambda)


def _is_of_another(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and not (isinstance(target.value, ast.Name) and target.value.id == "self")
