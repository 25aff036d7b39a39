"""What a policy's distribution thinks of one row, for people who watch it."""

import torch

from rainbow_iqn_apex.agents.distributions.discrete import Categorical, Categoricals
from rainbow_iqn_apex.agents.distributions.distribution import Distribution
from rainbow_iqn_apex.agents.distributions.normal import Normal
from rainbow_iqn_apex.agents.policy import Inspection

# The middle half and the middle nine tenths of the actions, around the median.
FRACTIONS = (0.05, 0.25, 0.5, 0.75, 0.95)


def inspection_of(policy: Distribution, value: float | None) -> Inspection:
    """Return the inspection of a policy at one row [1, ...]; raises TypeError for a distribution of another kind."""
    match policy:
        case Categorical():
            return Inspection("probabilities", policy.log_probabilities[0].exp().cpu().numpy(), value)
        case Categoricals():
            parts = [part[0] for part in policy.log_probabilities]  # [counts[k]] each
            counts = torch.tensor([len(part) for part in parts], dtype=torch.float32)  # [K]
            return Inspection("choices", torch.cat(parts).exp().cpu().numpy(), value, counts.numpy())
        case Normal():
            places = torch.tensor(FRACTIONS)  # [N]
            quantiles = policy.quantiles(places)[0]  # [K, N]
            action = policy.to_action(policy.mode())[0]  # [K]
            return Inspection("intervals", action.cpu().numpy(), value, places.numpy(), quantiles.cpu().numpy())
    raise TypeError(f"nothing to show of a {type(policy).__name__}")
