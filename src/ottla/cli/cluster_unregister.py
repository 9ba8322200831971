"""`ottla cluster unregister`: has the cluster forget a broker."""

from __future__ import annotations

import argparse
import json

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences
from ottla.client import Admin


def unregister(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        admin.unregister_broker(options.broker)
    print(json.dumps({"unregistered": options.broker}) if options.json else f"broker {options.broker}: unregistered")
    return 0
