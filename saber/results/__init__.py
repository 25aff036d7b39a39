"""Results of training and evaluation: logs, records, summaries and plots."""
