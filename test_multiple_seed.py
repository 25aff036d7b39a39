"""Evaluate a snapshot over several seeds and print its scores."""

from agents.evaluation import run_evaluation
from agents.programs import run_program

if __name__ == "__main__":
    run_program(run_evaluation, "test_multiple_seed.py", "Evaluate a snapshot over several seeds and print its scores.")
