"""The programs' loops, and what surrounds them: settings, files, signals."""

if __name__ != "rainbow_iqn_apex.programs":
    raise ImportError("import rainbow_iqn_apex.programs: under the name programs every class would exist twice")
