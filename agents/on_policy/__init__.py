"""The on-policy family: one agent whose parts are options, and five names for choices that were published."""
