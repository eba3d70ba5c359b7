"""The options of `gpudoctor install` and `gpudoctor completion`."""

import argparse

KINDS = ("systemd", "cron", "npd", "slurm", "node-exporter", "prometheus-rules", "grafana", "kubernetes")
SHELLS = ("bash", "zsh", "fish")


def install_options(parser: argparse.ArgumentParser) -> None:
    """Add those of `install`."""
    parser.epilog = (
        "Nothing is installed or changed: files are printed, or written into a directory of yours. See docs/install.md."
    )
    parser.add_argument(
        "--print", dest="kind", choices=KINDS, required=True, help="what for: its files, made for this node"
    )
    parser.add_argument("--file", metavar="NAME", help="only this one of them, and nothing else on stdout")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="write them into a new or empty directory instead, with INSTALL.txt"
    )
    parser.add_argument("--format", choices=("terminal", "json"), default="terminal", help="what stdout shows")
    parser.add_argument(
        "--command",
        dest="program",
        metavar="PROGRAM",
        help="where the doctor will lie on the node; by default where this one does",
    )
    parser.add_argument("--root", metavar="DIR", default="/", help="this node, its proc, sys and dev being below DIR")


def completion_options(parser: argparse.ArgumentParser) -> None:
    """Add those of `completion`."""
    parser.epilog = (
        'bash: eval "$(gpudoctor completion bash)"   zsh: gpudoctor completion zsh > a directory of $fpath/_gpudoctor   '
        "fish: gpudoctor completion fish | source"
    )
    parser.add_argument("shell", choices=SHELLS)
