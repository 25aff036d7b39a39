"""Policies as distributions over actions: `agents.distributions.spec` has which one an action spec takes.

A network's head gives parameters [..., P]. An actor records them with each row: they are all that a loss needs of the
policy that acted. Letters: P parameters of a distribution, A actions, K choices or numbers of one action.
"""
