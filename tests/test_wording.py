"""The words of the source: no name that was retired, and docstrings that begin with what they describe."""

import re

from support.sources import ROOT, files, source

RETIRED = {
    "Keep", "Parked", "Parks", "park", "parked", "parks", "settle", "abandon", "Slots", "copy_slots", "Places", "Pack",
    "aside", "carry", "carry_out", "conduct", "Desk", "attend", "Readings", "Materials", "gather", "Look", "look",
    "near", "noticing", "prose", "survey", "reach", "what_fits", "moments", "feedback", "rounding", "there",
    "apart", "ways", "arena", "shadows", "standing", "tell", "told", "words", "learned",
    "Layout", "Plan", "Part", "Circumstances", "Adapter", "Row", "Place", "Trained", "PackedLayout",
}  # fmt: skip
"""Names of an earlier vocabulary, in no use as a module, class, function or parameter; in prose they are free."""

NO_NOUN = re.compile(
    r"^\s+\*{0,2}\w+(?: \([^)]*\))?: "
    r"(?:Of|From|Its|Those|As|It|Where|What|In|With|For|To|On|By|One of|Also)\b"
)
"""A parameter's or attribute's line that does not begin with the noun that it is."""

NO_SUBJECT = re.compile(r"^(?:What|Where|How|That|See `|It,|Of|From|Its|Those|As|In|For|All that)\b")
"""The first line of a docstring that does not say what a thing is or does; constants have docstrings too."""

NO_QUANTITY = re.compile(r"^[A-Z_][A-Z0-9_, ]*(?::[^=\n]+)?= .*?(# (?:of|as|what|how|its|those)\b.*)", re.MULTILINE)
"""A comment behind a constant that begins in the middle of its sentence."""


def found_in(look):
    """What a search finds in each file, by the file's path; files without a finding are left out."""
    return {str(path.relative_to(ROOT)): found for path in files() if (found := look(source(path), path))}


def test_no_retired_name_is_left():
    """Neither as a name of a file, class, function or parameter; private ones count as public ones."""

    def retired(one, path):
        return RETIRED & {path.stem, *one.parameters, *(name.strip("_") for name in one.classes + one.functions)}

    assert not found_in(retired)


def test_no_two_classes_have_the_same_name():
    """One name, one meaning. Private classes of two files may share a name, but not that of a public class."""
    given = {}
    for path in (path for path in files() if "packaging" not in path.parts):
        for name in source(path).classes:
            given.setdefault(name.strip("_"), []).append((not name.startswith("_"), path.name))
    assert not {name: all_ for name, all_ in given.items() if len(all_) > 1 and any(public for public, _ in all_)}


def test_docstrings_begin_with_what_they_describe():
    def unclear(one, _path):
        heads = [text.split("\n") for text in one.docstrings]
        return [head for head, *_ in heads if NO_SUBJECT.match(head)] + [
            line for _, *rest in heads for line in rest if NO_NOUN.match(line)
        ]

    assert not found_in(unclear)


def test_comments_of_constants_begin_with_what_the_constant_is():
    assert not found_in(lambda one, _path: NO_QUANTITY.findall(one.text))
