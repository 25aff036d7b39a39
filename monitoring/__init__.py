"""Shows what a run does: metrics of its processes, and the places that they are sent to."""

if __name__ != "rainbow_iqn_apex.monitoring":
    raise ImportError("import rainbow_iqn_apex.monitoring: under the name monitoring every class would exist twice")
