"""Vector environments of Gymnasium, as their authors make them."""
