"""Metrics as a scraper sees them, read by prometheus_client's own parser."""
from prometheus_client.parser import text_string_to_metric_families

from lib.rest import Rest


def families(server):
    """{name: family}; a counter's name is without _total, as the parser gives it."""
    with Rest(server.metrics) as client:
        text = client.get("/metrics").ok().body.decode()
    return {f.name: f for f in text_string_to_metric_families(text)}


def samples(server, name):
    """[(labels, value)] of one sample name."""
    return [(s.labels, s.value) for f in families(server).values() for s in f.samples if s.name == name]


def value(server, name, **labels):
    """The sum of all samples of that name whose labels include these; None when there is none."""
    found = [v for l, v in samples(server, name) if labels.items() <= l.items()]
    return sum(found) if found else None
