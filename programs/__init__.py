"""The programs' loops, and what surrounds them: settings, files, signals."""
