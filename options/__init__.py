"""What options are made of: declaring and parsing them, files of settings, presets, completion."""

if __name__ != "rainbow_iqn_apex.options":
    raise ImportError("import rainbow_iqn_apex.options: under the name options every class would exist twice")
