"""The yardstick A: a program that does nothing but import what any command-line tool imports."""

# ruff: noqa: F401 - importing is all that this program is for

import argparse
import dataclasses
import enum
import json
import pathlib
import re
