"""Mixed replay: batches of fixed shares from a queue and from tables of older sequences."""
