"""The benchmark report `saber.html` and `saber.json`, from the training logs of one or many runs."""
