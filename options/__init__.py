"""What options are made of: declaring and parsing them, files of settings, presets, completion."""
