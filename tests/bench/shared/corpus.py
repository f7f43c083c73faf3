"""Real text for training from scratch: the documentation that Debian packages ship under permissive licenses.

    mkdir debs && cd debs && apt-get download rust-doc postgresql-doc-15 nodejs-doc python3.11-doc sqlite3-doc \\
        cmake-doc libboost1.74-doc erlang-doc golang-1.19-doc apache2-doc llvm-14-doc clang-14-doc python-django-doc \\
        python-sqlalchemy-doc
    python tests/bench corpus debs corpus.jsonl

Rust: MIT or Apache-2.0. PostgreSQL, Python, Boost: their own, permissive. Node.js, SQLAlchemy: MIT. SQLite: public
domain. CMake, Go, Django: BSD-3-Clause. Erlang, Apache httpd: Apache-2.0; LLVM and Clang with its exception. A
paragraph that was met before, to the letter, is left out, so that every token counted is a new one; so is everything
but English.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import tempfile
from html.parser import HTMLParser
from pathlib import Path

_SKIPPED = {"script", "style", "nav", "head", "footer", "svg"}
_BLOCKS = {
    "p", "div", "li", "td", "th", "tr", "dd", "dt", "pre", "h1", "h2", "h3", "h4", "h5", "section", "br", "table"
}  # fmt: skip
_LEAST_PARAGRAPH, _LEAST_DOCUMENT = 60, 400  # characters
_OTHER_LANGUAGE = re.compile(r"/(de|es|fr|ja|ko|pt-br|tr|da|zh-cn)/|\.html\.(?!en)")


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.paragraphs: list[str] = [""]
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _SKIPPED:
            self._inside.append(tag)
        elif tag in _BLOCKS:
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            del self._inside[self._inside.index(tag) :]
        elif tag in _BLOCKS:
            self.paragraphs.append("")

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.paragraphs[-1] += data


def paragraphs(page: str) -> list[str]:
    """The page's paragraphs, white space made one blank."""
    parser = _Text()
    parser.feed(page)
    return [" ".join(paragraph.split()) for paragraph in parser.paragraphs]


def write_corpus(folder: Path, out: Path) -> None:
    """Unpack, take out the text, write a row for each page with something new."""
    seen: set[bytes] = set()
    rows = characters = 0
    with out.open("w", encoding="utf-8") as file:
        for package in sorted(folder.glob("*.deb")):
            before = characters
            with tempfile.TemporaryDirectory() as place:
                subprocess.run(["dpkg", "-x", str(package), place], check=True)
                for page in sorted(path for path in Path(place).rglob("*.html*") if path.is_file()):
                    if page.is_symlink() or _OTHER_LANGUAGE.search(page.as_posix()):
                        continue
                    kept = []
                    for paragraph in paragraphs(page.read_text(encoding="utf-8", errors="replace")):
                        mark = hashlib.blake2b(paragraph.encode(), digest_size=12).digest()
                        if len(paragraph) >= _LEAST_PARAGRAPH and mark not in seen:
                            seen.add(mark)
                            kept.append(paragraph)
                    text = "\n\n".join(kept)
                    if len(text) >= _LEAST_DOCUMENT:
                        file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                        rows, characters = rows + 1, characters + len(text)
            print(f"{package.name}: {(characters - before) / 1e6:.1f} M characters", flush=True)
    print(f"{rows:,} rows, {characters / 1e6:.1f} M characters")


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the packages")
    parser.add_argument("out", type=Path, help="file of the rows")
    options = parser.parse_args()
    write_corpus(options.folder, options.out)


if __name__ == "__main__":
    main()
