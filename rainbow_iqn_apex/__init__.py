"""The project as an installed package, which begins here when one of the commands of pyproject.toml is called.

All modules of the project lie in this package then, and find each other as in the checkout: by `import memory`. Thus
nothing but this name is added to those that other packages have. An editable installation has the checkout itself among
the places of modules.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_here = Path(__file__).resolve().parent
if not (_here / "launch_learner.py").exists() and (_found := find_spec("launch_learner")) and _found.origin:
    _here = Path(_found.origin).parent
__path__ = [*__path__, str(_here)]
sys.path.insert(0, str(_here))
