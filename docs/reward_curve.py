"""Draws the README's reward curve: python -m docs.reward_curve results/runs/<name>.csv > docs/<name>.svg."""

import sys
from pathlib import Path

from saber.summary import Moment, rolling_summaries
from saber.training_log import read_records

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 300, 70, 20, 40, 50
WINDOW = 20  # episodes


def curve(moments: list[Moment]) -> str:
    """An SVG with the mean of the last episodes, and one standard deviation around it, against agent steps."""
    steps = [moment.newest.T_actors for moment in moments]
    spread = [(m.summary.mean, m.summary.standard_deviation or 0.0) for m in moments]
    top = max(mean + deviation for mean, deviation in spread)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps[-1]

    def y(score: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(0.0, score) / top

    def points(scores: list[float]) -> list[str]:
        return [f"{x(step):.1f},{y(score):.1f}" for step, score in zip(steps, scores, strict=True)]

    upper = points([mean + deviation for mean, deviation in spread])
    lower = points([mean - deviation for mean, deviation in spread])
    middle = points([mean for mean, _ in spread])
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    lines = [
        head + ' font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for part in range(5):
        score, step = top * part / 4, steps[-1] * part / 4
        lines.append(f'<path d="M{LEFT} {y(score):.1f}H{WIDTH - RIGHT}" stroke="#e4e7ec"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y(score) + 4:.1f}" text-anchor="end">{score:,.0f}</text>')
        lines.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 28}" text-anchor="middle">{step:,.0f}</text>')
    lines += [
        f'<polygon points="{" ".join(upper + lower[::-1])}" fill="#3b82d6" fill-opacity="0.22"/>',
        f'<polyline points="{" ".join(middle)}" fill="none" stroke="#3b82d6" stroke-width="2"/>',
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">agent steps; mean SABER score of '
        f"the last {WINDOW} training episodes, ± 1 standard deviation</text>",
        "</svg>",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(curve(rolling_summaries(read_records(Path(sys.argv[1])), WINDOW)))
