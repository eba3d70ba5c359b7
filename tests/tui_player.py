"""Plays what a run tells, line by line, with pauses and in ways of getting stuck: `python tui_player.py SCRIPT`.

A script's lines are printed as they are, but for `{"play": ...}`: wait for the file PATH, complain WORDS on stderr, hang (deaf to SIGTERM),
stop (as a stopped task is), or exit STATUS.
"""

import json
import os
import signal
import sys
import time


def main() -> int:
    """Play."""
    with open(sys.argv[1], encoding="utf-8") as script:
        for line in script:
            told = json.loads(line)
            if "play" not in told:
                sys.stdout.write(line)
                sys.stdout.flush()
                continue
            match told["play"]:
                case "wait":
                    while not os.path.exists(told["path"]):
                        time.sleep(0.02)
                case "complain":
                    print(told["words"], file=sys.stderr, flush=True)
                case "hang":
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    time.sleep(600)
                case "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case "exit":
                    return int(told["status"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
