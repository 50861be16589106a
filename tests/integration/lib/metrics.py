"""Metrics as a scraper sees them, read by prometheus_client's own parser."""
import re

from prometheus_client.parser import text_string_to_metric_families

from lib.rest import Rest


def text(server):
    """What a scraper gets."""
    with Rest(server.metrics) as client:
        return client.get("/metrics").ok().body.decode()


def families(server):
    """{name: family}"""
    return {f.name: f for f in text_string_to_metric_families(text(server))}


def samples(server, name):
    """[(labels, value)] of one sample name. The parser is slow, and gets the lines of this name alone."""
    lines = re.findall(rf"^{name}[{{ ].*\n", text(server), re.MULTILINE)
    return [(s.labels, s.value) for f in text_string_to_metric_families("".join(lines)) for s in f.samples]


def value(server, name, **labels):
    """The sum of all samples of that name whose labels include these; None when there is none."""
    found = [v for l, v in samples(server, name) if labels.items() <= l.items()]
    return sum(found) if found else None


def node_events(server, model="w"):
    """{event: how often}, of the nodes of a workflow"""
    return {labels["event"]: n for labels, n in samples(server, "millrace_workflow_node_events_total") if labels["model"] == model}
