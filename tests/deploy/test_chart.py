"""The Helm chart in deploy/, as Helm renders it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

from calving.settings.load import load
from tests.cli.pages import follow

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "calving"
CONFIG = {
    "topics": "orders",
    "iceberg.tables": "sales.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog.example.com",
    "iceberg.catalog.token": "${env:CATALOG_TOKEN}",
    "iceberg.control.commit.interval-ms": 10_000_000,
    "kafka.bootstrap.servers": "kafka:9092",
}
SINKS: dict[str, dict[str, Any]] = {
    "orders": {"config": CONFIG, "secret": "calving-orders"},
    "payments": {
        "config": {**CONFIG, "name": "Payments_EU", "spark.master": "local[4]"},
        "secret": "calving-payments",
        "replicas": 1,
        "resources": {"limits": {"memory": "6Gi"}},
        "secretFiles": "kafka-certificates",
        "nodeSelector": {"pool": "sinks"},
    },
}
OPERATORS = {"PodMonitor", "PrometheusRule"}
"""The kinds of the Prometheus operator."""


def rendered(release: str = "lake", /, **values: object) -> list[dict[str, Any]]:
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render({"sinks": SINKS, **values}, name=release, namespace="data")
    return [each for text in files.values() for each in yaml.safe_load_all(text) if each]


def of(kind: str, found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def pod(sink: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = of("Deployment", found)[f"lake-{sink}"]["spec"]["template"]["spec"]
    return spec


def test_an_image_is_named_by_its_digest_if_there_is_one() -> None:
    digest = f"sha256:{'a' * 64}"
    image = pod("orders", rendered(image={"repository": "r.example.com/calving", "tag": "1", "digest": digest}))
    assert image["containers"][0]["image"] == f"r.example.com/calving:1@{digest}"
    assert "digest" in refused({"sinks": SINKS, "image": {"digest": "latest"}})


def refused(values: Mapping[str, object]) -> str:
    with helm.Chart.load(str(CHART)) as chart, pytest.raises(helm.HelmError) as error:
        chart.validate_schema(chart.merge_values(dict(values)))
    return str(error.value)


EVERYTHING = {"monitoring": {"podMonitor": True, "alerts": True, "labels": {"release": "prometheus"}}}


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    found = helm.lint(str(CHART))
    assert (found["errors"], [each for each in found["messages"] if "icon" not in str(each)]) == ([], [])


def test_kubernetes_takes_what_is_rendered() -> None:
    found = rendered(**EVERYTHING)
    for each in found:
        if each["kind"] not in OPERATORS:
            kubernetes_validate.validate(each, "1.30", strict=True)
    assert (
        sorted(of("Deployment", found)) == sorted(of("PodDisruptionBudget", found)) == ["lake-orders", "lake-payments"]
    )


@pytest.mark.parametrize(
    ("sink", "name", "master"), [("orders", "orders", "local[2]"), ("payments", "Payments_EU", "local[4]")]
)
def test_a_sink_is_valid_and_serves_what_is_probed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sink: str, name: str, master: str
) -> None:
    monkeypatch.setenv("CALVING_TOKEN", "0123456789abcdef")
    monkeypatch.setenv("CATALOG_TOKEN", "x")
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    found = rendered()
    (tmp_path / "sink.json").write_text(of("ConfigMap", found)[f"lake-{sink}"]["data"]["sink.json"])
    loaded = load(tmp_path / "sink.json")
    (worker,) = pod(sink, found)["containers"]
    (port,) = worker["ports"]
    assert (loaded.keys.name, loaded.spark["spark.master"]) == (name, master)
    assert loaded.keys.commit_interval_ms == 10_000_000
    assert loaded.keys.http_port == port["containerPort"]
    assert loaded.keys.http_advertised == f"http://10.0.0.7:{port['containerPort']}/"
    probes = [worker[f"{which}Probe"]["httpGet"] for which in ("liveness", "readiness")]
    assert probes == [{"path": "/healthz", "port": "http"}, {"path": "/readyz", "port": "http"}]
    assert pod(sink, found)["terminationGracePeriodSeconds"] > 2 * loaded.keys.stop_timeout_ms / 1000


def test_a_pod_is_as_closed_as_that_of_the_manifests() -> None:
    (plain,) = (
        each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()) if each["kind"] == "Deployment"
    )
    theirs = plain["spec"]["template"]["spec"]
    for sink in SINKS:
        own = pod(sink, rendered())
        assert own["securityContext"] == theirs["securityContext"]
        assert own["containers"][0]["securityContext"] == theirs["containers"][0]["securityContext"]
        assert own["automountServiceAccountToken"] is False
        assert all("sizeLimit" in volume["emptyDir"] for volume in own["volumes"] if "emptyDir" in volume)


def test_a_sink_has_its_own_values_and_else_the_defaults() -> None:
    found = rendered(defaults={"replicas": 3, "nodeSelector": {"zone": "a"}})
    assert {name: each["spec"]["replicas"] for name, each in of("Deployment", found).items()} == {
        "lake-orders": 3,
        "lake-payments": 1,
    }
    assert pod("orders", found)["nodeSelector"] == {"zone": "a"}
    resources = pod("payments", found)["containers"][0]["resources"]
    assert resources["limits"] == {"memory": "6Gi", "ephemeral-storage": "8Gi"}


def test_secrets_come_by_reference_and_each_sink_sees_only_its_own() -> None:
    found = rendered()
    assert pod("orders", found)["containers"][0]["envFrom"] == [{"secretRef": {"name": "calving-orders"}}]
    assert pod("payments", found)["containers"][0]["envFrom"] == [{"secretRef": {"name": "calving-payments"}}]
    mounted = {
        sink: [v["secret"]["secretName"] for v in pod(sink, found)["volumes"] if "secret" in v] for sink in SINKS
    }
    assert mounted == {"orders": [], "payments": ["kafka-certificates"]}
    assert of("Secret", found) == {}


def test_another_configuration_of_a_sink_starts_only_its_workers_again() -> None:
    def sums(found: list[dict[str, Any]]) -> dict[str, str]:
        deployments = of("Deployment", found)
        return {n: d["spec"]["template"]["metadata"]["annotations"]["checksum/sink"] for n, d in deployments.items()}

    changed = {**SINKS, "orders": {**SINKS["orders"], "config": {**CONFIG, "iceberg.tables": "sales.others"}}}
    before, after = sums(rendered()), sums(rendered(sinks=changed))
    assert {name for name in before if before[name] != after[name]} == {"lake-orders"}


def test_selectors_find_the_pods_of_their_sink_and_no_others() -> None:
    found = rendered(**EVERYTHING)
    labels = {n: d["spec"]["template"]["metadata"]["labels"] for n, d in of("Deployment", found).items()}

    def selected(selector: Mapping[str, Any]) -> list[str]:
        return sorted(n for n, have in labels.items() if selector["matchLabels"].items() <= have.items())

    for name in labels:
        assert selected(of("Deployment", found)[name]["spec"]["selector"]) == [name]
        assert selected(of("PodDisruptionBudget", found)[name]["spec"]["selector"]) == [name]
    assert selected(of("NetworkPolicy", found)["lake"]["spec"]["podSelector"]) == sorted(labels)
    assert selected(of("PodMonitor", found)["lake"]["spec"]["selector"]) == sorted(labels)


def test_the_alerts_are_those_of_the_folder_and_off_unless_asked_for() -> None:
    rules = of("PrometheusRule", rendered(**EVERYTHING))["lake"]
    assert rules["spec"] == yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    assert not {each["kind"] for each in rendered()} & OPERATORS


def test_the_network_policy_lets_in_who_is_named() -> None:
    (rule,) = of("NetworkPolicy", rendered())["lake"]["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert of("NetworkPolicy", rendered(networkPolicy={"enabled": False})) == {}


def test_pods_have_the_service_account_that_is_made_or_named() -> None:
    made = rendered(serviceAccount={"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/lake"}})
    assert pod("orders", made)["serviceAccountName"] in of("ServiceAccount", made)
    named = rendered(serviceAccount={"create": False, "name": "ours"})
    assert (pod("orders", named)["serviceAccountName"], of("ServiceAccount", named)) == ("ours", {})


@pytest.mark.parametrize(
    "values",
    [
        {"sinks": {"orders": {"config": CONFIG}}},
        {"sinks": {"Orders_EU": SINKS["orders"]}},
        {"sinks": {"orders": {**SINKS["orders"], "replica": 2}}},
        {"sinks": {"orders": {**SINKS["orders"], "config": {**CONFIG, "iceberg.http.port": 80}}}},
        {"sinks": {"orders": {**SINKS["orders"], "config": {**CONFIG, "iceberg": {"http": {"port": 80}}}}}},
        {"sinks": {"orders": {**SINKS["orders"], "config": {**CONFIG, "iceberg.http": {"token": "text"}}}}},
        {"image": {"repositry": "x"}},
        {"sinks": {"orders": {**SINKS["orders"], "secret": "a, optional: true"}}},
        {"sinks": {"orders": {**SINKS["orders"], "secretFiles": "Certificates"}}},
        {"sinks": {"orders": {**SINKS["orders"], "scratch": "2Gi, medium: Memory"}}},
        {"monitoring": {"interval": "15s}, {port: x"}},
    ],
    ids=[
        "no secret",
        "name",
        "misspelt",
        "port",
        "nested port",
        "nested token",
        "image",
        "secret",
        "secret files",
        "size",
        "interval",
    ],
)
def test_wrong_values_are_refused(values: Mapping[str, object]) -> None:
    assert refused(values)


@pytest.mark.parametrize("name", ["2024", "true", "on", "0x1f", "null", "1e3", "2024-01-01"])
def test_names_that_yaml_reads_as_something_else_are_names(name: str) -> None:
    own = {"config": CONFIG, "secret": name, "secretFiles": name, "scratch": "1", "home": "1"}
    labels = {"labels": {"a": name, name: "b"}}
    found = rendered(name, sinks={name: own}, monitoring={**EVERYTHING["monitoring"], **labels})
    for each in found:
        if each["kind"] not in OPERATORS:
            kubernetes_validate.validate(each, "1.30", strict=True)
    deployment = of("Deployment", found)[f"{name}-{name}"]
    assert deployment["metadata"]["labels"]["app.kubernetes.io/component"] == name
    assert deployment["metadata"]["labels"]["app.kubernetes.io/instance"] == name
    spec = deployment["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["containers"][0]["envFrom"]) == (name, [{"secretRef": {"name": name}}])
    assert of("PodMonitor", found)[name]["metadata"]["labels"].items() >= labels["labels"].items()


@pytest.mark.parametrize("spark", [{"spark.master": "local[8]"}, {"spark": {"master": "local[8]"}}])
def test_a_sinks_own_spark_master_counts(
    spark: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("CALVING_TOKEN", "CATALOG_TOKEN", "POD_IP"):
        monkeypatch.setenv(variable, "10.0.0.7-0123456789")
    found = rendered(sinks={"orders": {"config": {**CONFIG, **spark}, "secret": "calving-orders"}})
    (tmp_path / "sink.json").write_text(of("ConfigMap", found)["lake-orders"]["data"]["sink.json"])
    assert load(tmp_path / "sink.json").spark["spark.master"] == "local[8]"


def test_no_sink_is_no_error() -> None:
    assert of("Deployment", rendered(sinks={})) == {}


def test_the_values_of_the_chart_keep_to_their_schema() -> None:
    json.loads((CHART / "values.schema.json").read_text())
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(chart.values)


def test_the_page_about_forty_connectors_ends_with_values_of_the_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow("how-to/forty-connectors.md", tmp_path, {}) == 3
    sinks = yaml.safe_load((tmp_path / "sinks.yaml").read_text())["sinks"]
    assert sorted(of("Deployment", rendered(sinks=sinks))) == ["lake-orders", "lake-payments", "lake-refunds"]
