"""What the documents name is there, and their blocks are scripts of bash, of which one makes certificates."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import SHELL, anchors, blocks, documents, links
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


@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_are_for_bash(document: str) -> None:
    for block in blocks(document, DOCUMENTS[document]):
        assert block.language in (*SHELL, "text", "python", "toml"), f"{document}:{block.line}"
        if block.language in SHELL:
            bash = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
            assert (bash.returncode, bash.stderr) == (0, ""), f"{document}:{block.line}"


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_the_commands_of_access_make_certificates(tmp_path: Path) -> None:
    block = next(blocks("docs/access.md", DOCUMENTS["docs/access.md"]))
    making, serving = block.text.split("redis-server ")
    python = shlex.join([sys.executable, str(ROOT / "programs" / "make_redis_users.py")])
    script = "set -e\n" + making.replace("python programs/make_redis_users.py", python)
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    for file in re.findall(r'"\$PWD/(access/[^"]*)"', serving):
        assert (tmp_path / file).stat().st_size, file
    verify = "openssl verify -CAfile access/ca.crt -verify_hostname redis.example.org access/server.crt".split()
    subprocess.run(verify, cwd=tmp_path, check=True, capture_output=True)
