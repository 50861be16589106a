"""deploy/kubernetes: valid for Kubernetes, and for the program that it starts."""
import re
import subprocess

import pytest
import yaml

from lib import metrics, repo
from lib.rest import Rest
from lib.server import BIN, clean_environment

kubernetes_validate = pytest.importorskip("kubernetes_validate")
FOLDER = repo.TOP / "deploy" / "kubernetes"
VERSION = kubernetes_validate.latest_version()


def objects(kind=None):
    found = [o for path in sorted(FOLDER.glob("*.yaml")) for o in yaml.safe_load_all(path.read_text()) if o]
    return [o for o in found if kind in (None, o["kind"])]


def only(kind, name="millrace"):
    [one] = [o for o in objects(kind) if o["metadata"]["name"] == name]
    return one


def container():
    [one] = only("StatefulSet")["spec"]["template"]["spec"]["containers"]
    return one


def options():
    return dict(a[2:].split("=", 1) for a in container()["args"][1:])


def test_schema():
    checked = [o for o in objects() if o["kind"] not in ("ScaledObject", "Kustomization")]
    assert {o["kind"] for o in checked} == {"StatefulSet", "Service", "PodDisruptionBudget"}
    for o in checked:
        kubernetes_validate.validate(o, VERSION, strict=True)


def test_schema_finds_mistakes():
    wrong = only("StatefulSet")
    wrong["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


def test_behavior_of_the_autoscaler_is_that_of_a_horizontal_one():
    scaled = only("ScaledObject")["spec"]
    target = scaled["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", only("StatefulSet")["metadata"]["name"])
    kubernetes_validate.validate({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"},
        "spec": {"scaleTargetRef": target, "minReplicas": scaled["minReplicaCount"], "maxReplicas": scaled["maxReplicaCount"],
                 "behavior": scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]}}, VERSION, strict=True)


def test_kustomization_has_the_files():
    [k] = objects("Kustomization")
    assert set(k["resources"]) <= {p.name for p in FOLDER.iterdir()}


def test_options_are_those_of_the_program():
    help_text = subprocess.run([BIN, "serve", "--help"], capture_output=True, text=True, check=True, env=clean_environment()).stdout
    known = set(re.findall(r"--([a-z][a-z0-9-]+)", help_text))
    assert container()["args"][0] == "serve" and set(options()) <= known


def test_names_and_ports_fit_together():
    state, pod = only("StatefulSet"), only("StatefulSet")["spec"]["template"]
    ports = {p["name"]: p["containerPort"] for p in container()["ports"]}
    given = options()
    assert ports == {"http": int(given["http-port"]), "grpc": int(given["grpc-port"]), "metrics": int(given["metrics-port"]),
                     "mesh": int(given["mesh-address"].rsplit(":", 1)[1])}
    labels = pod["metadata"]["labels"]
    assert state["spec"]["selector"]["matchLabels"] == labels == only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    for service in objects("Service"):
        assert service["spec"]["selector"] == labels
        assert all(ports[p["targetPort"]] == p["port"] for p in service["spec"]["ports"])
    peers = only("Service", state["spec"]["serviceName"])
    assert peers["spec"]["clusterIP"] == "None" and f".{peers['metadata']['name']}." in given["mesh-address"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > int(given["exit-timeout-secs"])
    assert pod["spec"]["enableServiceLinks"] is False  # no MILLRACE_HTTP_PORT=tcp://... of a service millrace-http
    mounts = {m["name"]: m["mountPath"] for m in container()["volumeMounts"]}
    assert set(mounts) == {v["name"] for v in pod["spec"]["volumes"]}
    for option, mount in (("model-repository", "models"), ("mesh-tls-cert", "tls"), ("mesh-tls-key", "tls"), ("mesh-tls-ca", "tls")):
        assert given[option].startswith(mounts[mount])
    assert {v for a in container()["args"] for v in re.findall(r"\$\(([A-Z_]+)\)", a)} <= {e["name"] for e in container()["env"]}


def test_probes_and_signals_are_the_servers(fleet, models):
    repo.add(models, "m", repo.config())
    [server] = fleet(models)
    with Rest(server.http) as r:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            get = container()[probe]["httpGet"]
            assert get["port"] == "http" and r.get(get["path"]).status == 200
    have = set(metrics.families(server))
    for trigger in only("ScaledObject")["spec"]["triggers"]:
        assert set(re.findall(r"millrace_[a-z_]+", trigger["metadata"]["query"])) <= have
