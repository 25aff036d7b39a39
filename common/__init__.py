"""What everything leans on: errors, texts, files, seeds, clocks and waiting. Imports nothing of ours."""

if __name__ != "rainbow_iqn_apex.common":
    raise ImportError("import rainbow_iqn_apex.common: under the name common every class would exist twice")
