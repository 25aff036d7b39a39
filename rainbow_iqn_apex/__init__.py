"""The project as a package: `rainbow_iqn_apex.agents` is the folder `agents/`, in the checkout and installed.

The folders and programs beside this one are linked into it, so that every module has one name, which no other package
and no module of a user's own can take.
"""

__version__ = "1.0.0"  # pyproject.toml reads it here
