"""What the Rainbow agents share."""
