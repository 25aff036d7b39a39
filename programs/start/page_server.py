"""Run servers of web pages beside a run, the dashboard and TensorBoard, and print their addresses."""

import re
import sys
from collections.abc import Callable

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.sink_options import tensorboard_folder
from rainbow_iqn_apex.programs.start.output import say
from rainbow_iqn_apex.programs.start.process import Process


def _address_told(name: str, address: str) -> Callable[[bytes], bool]:
    """Return what prints the address in a line of a server; it returns whether nothing is left of the line to print."""

    def print_address(line: bytes) -> bool:
        found = re.search(address, line.decode(errors="replace"))
        if found:
            say(f"{name} shows this run at {found[1]}")
        return bool(found) or not line.strip()

    return print_address


def page_servers(args: Args) -> list[Process]:
    """Return the dashboard; and TensorBoard, if it is asked for."""
    given = [name for name in ("host_redis", "port_redis", "redis_url") if name in args.given]
    options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in given]
    run = [f"--path-to-results={args.path_to_results}", f"--run-name={args.name}"]
    command = [*command_line.run_by("dashboard.py"), *run, *options]
    servers = [Process("dashboard", command, _address_told("the dashboard", r"Dashboard: (\S+)"))]
    if args.tensorboard:
        # It takes port 6006, or one of those that follow.
        folder = str(tensorboard_folder(args.path_to_results, args.task))
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--samples_per_plugin", "images=1000"]
        servers.append(Process("TensorBoard", command, _address_told("TensorBoard", r"TensorBoard \S+ at (http\S+)")))
    return servers
