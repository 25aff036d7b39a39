"""What actors play: an interface, a registry, and a folder for each library of environments."""

if __name__ != "rainbow_iqn_apex.environments":
    raise ImportError("import rainbow_iqn_apex.environments: under the name environments every class would exist twice")
