"""What agents compute: networks, losses and policies. Nothing here uses Redis, files or environments."""

if __name__ != "rainbow_iqn_apex.agents":
    raise ImportError("import rainbow_iqn_apex.agents: under the name agents every class would exist twice")
