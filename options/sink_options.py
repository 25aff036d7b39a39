"""The options that name further places for the learner's metrics, and whether these places can be had.

Packages for them are extras (requirements-extra.txt), looked for only where an option needs them.
"""

import shlex
import socket
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.common.text import reason

PACKAGES = {  # by option: the module to import, and what to install
    "tensorboard": ("rainbow_iqn_apex.monitoring.sinks.tensorboard", "tensorboard>=2.21"),
    "metrics_port": ("rainbow_iqn_apex.monitoring.sinks.prometheus", "prometheus-client>=0.26"),
    "wandb": ("rainbow_iqn_apex.monitoring.sinks.wandb", "wandb>=0.31"),
    "trackio": ("rainbow_iqn_apex.monitoring.sinks.trackio", "trackio>=0.43"),
}


@dataclass(frozen=True)
class SinkOptions:
    """metrics of the learner"""

    tensorboard: bool = option(
        False, "write event files to <game>_tensorboard in the results folder; needs an extra", flag=True
    )
    metrics_port: int = option(
        0, "port at which Prometheus gets the metrics; needs an extra; 0: none", least=0, most=65535
    )
    metrics_host: str = option("127.0.0.1", "address of that port; another one lets other machines read the metrics")
    wandb: bool = option(False, "send metrics to Weights & Biases; needs an extra", flag=True)
    trackio: bool = option(False, "write metrics for Trackio; needs an extra", flag=True)


def tensorboard_folder(results: Path, game: str) -> Path:
    """Return where the event files of a game's runs are."""
    return results / f"{game}_tensorboard"


def event_folder(results: Path, game: str, run: str) -> Path:
    """Return where a run's event files are: TensorBoard names runs after such folders."""
    return tensorboard_folder(results, game) / run


def check_sinks(options: SinkOptions) -> None:
    """Raise UserError, a line for each mistake, if a package is missing, the port is taken, or W&B needs an account."""
    errors = [error for name in PACKAGES if getattr(options, name) and (error := _package_error(name))]
    if not errors:
        errors = [*_port_errors(options), *_account_errors(options)]
    if errors:
        raise UserError("\n".join(errors))


def _package_error(name: str) -> str:
    module, package = PACKAGES[name]
    try:
        import_module(module)
    except ImportError as error:
        command = shlex.join([sys.executable, "-m", "pip", "install", package])
        return f"--{name.replace('_', '-')}: needs an extra that is missing ({error}); install it with: {command}"
    return ""


def _port_errors(options: SinkOptions) -> list[str]:
    if not options.metrics_port:
        return []
    host, port = options.metrics_host, options.metrics_port
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        why = f"expected a free port of this machine, got {host}:{port} ({reason(error)}); choose another"
        return [f"--metrics-host, --metrics-port: {why}"]
    return []


def _account_errors(options: SinkOptions) -> list[str]:
    if not options.wandb:
        return []
    from rainbow_iqn_apex.monitoring.sinks.wandb import prepare  # an extra

    if prepare():
        return []
    return ["--wandb: no account is known on this machine; give `wandb login`, or set WANDB_MODE=offline"]
