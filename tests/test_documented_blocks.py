"""Blocks of the documents are scripts of bash, and the one that makes certificates does so."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import SHELL, blocks, documents
from tests.processes import ROOT

DOCUMENTS = documents()


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
