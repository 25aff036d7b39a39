"""What the documents name is there: the ends of their links, and the files of the glossary."""

import re
from collections.abc import Iterator

import pytest

from tests.documents import anchors, documents, links
from tests.processes import ROOT

DOCUMENTS = documents()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for link in links(DOCUMENTS[document]):
        place, _, anchor = link.partition("#")
        target = (ROOT / document).parent / place if place else ROOT / document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def glossary(text: str) -> Iterator[tuple[str, str, str]]:
    """The rows of the glossary: word, meaning, file."""
    for word, meaning, file in re.findall(r"(?m)^\| (.*?) \| (.*) \| (.*?) \|$", text):
        if file != "file":
            yield word, meaning, file


def glossary_errors(text: str) -> list[str]:
    rows = list(glossary(text))
    words = [word.lower() for word, _, _ in rows]
    missing = [word for word, _, file in rows if not (file[0] == file[-1] == "`" and (ROOT / file[1:-1]).is_file())]
    return [*missing, *{word for word in words if words.count(word) > 1}]


def test_the_glossary_names_files_that_exist_and_each_word_once() -> None:
    text = DOCUMENTS["docs/glossary.md"]
    assert len(list(glossary(text))) > 60
    assert glossary_errors(text) == []
    assert glossary_errors(text.replace("memory/chunk.py", "memory/chunks.py", 1)) == ["extras"], "the mutation"
