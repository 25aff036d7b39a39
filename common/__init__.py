"""What everything leans on: errors, texts, files, seeds, clocks and waiting. Imports nothing of ours."""
