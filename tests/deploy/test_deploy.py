"""The files in deploy/ use existing metrics, keys and endpoints."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from calving.serving.metrics import METRICS, SINK
from calving.settings.files import flat
from calving.settings.load import parse
from calving.status.remedies import REMEDIES, Cause, section

DEPLOY = Path(__file__).parents[2] / "deploy"
SPARK = "kubernetes-spark.yaml"
DASHBOARD = json.loads((DEPLOY / "grafana.json").read_text())
RULES = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
DECLARED = {metric.name: metric for metric in METRICS}
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_ADDED = {"job", "instance", "le", SINK}
"""Labels that Prometheus adds, that of a histogram's buckets, and that of every series."""


def expressions() -> Iterator[tuple[str, str, str]]:
    """Where, the query, and the text that shows its labels."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield f"dashboard, {panel['title']}", target["expr"], target["legendFormat"]
    for rule in RULES["groups"][0]["rules"]:
        yield f"alert {rule['alert']}", rule["expr"], json.dumps(rule["annotations"])


EXPRESSIONS = list(expressions())


def metrics_of(query: str) -> set[str]:
    names = set(re.findall(r"\bcalving_\w+", query))
    return {n if n in DECLARED else _SUFFIX.sub("", n) for n in names}


@pytest.mark.parametrize(("where", "query", "text"), EXPRESSIONS, ids=[where for where, _, _ in EXPRESSIONS])
def test_every_metric_and_label_that_is_asked_for_is_declared(where: str, query: str, text: str) -> None:
    names = metrics_of(query)
    assert names and names <= DECLARED.keys()
    labels = {label for name in names for label in DECLARED[name].labels} | _ADDED
    asked = {each.strip() for found in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for each in found.split(",")}
    asked |= set(re.findall(r"[{,]\s*(\w+)(?:=|!=)[~\"]", query))
    shown = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))
    assert asked - {""} <= labels
    assert shown <= {label for found in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r",\s*", found)}


@pytest.mark.parametrize(("where", "query", "text"), EXPRESSIONS, ids=[where for where, _, _ in EXPRESSIONS])
def test_a_histogram_is_asked_for_by_its_series_and_nothing_else_is(where: str, query: str, text: str) -> None:
    for name in re.findall(r"\bcalving_\w+", query):
        metric = DECLARED.get(name) or DECLARED[_SUFFIX.sub("", name)]
        assert (metric.kind == "histogram") == (name != metric.name)


@pytest.mark.parametrize(("where", "query", "text"), EXPRESSIONS, ids=[where for where, _, _ in EXPRESSIONS])
def test_no_number_is_added_up_over_sinks(where: str, query: str, text: str) -> None:
    """What takes series of the metrics keeps the sink. Only their number may be counted after that."""
    innermost = re.findall(r"(?:\b(?:sum|max|min|avg|count) (by \([^)]*\)) )?\((?:\w+\()*calving_\w+", query)
    assert len(innermost) == len(re.findall(r"\bcalving_", query))
    assert all(kept.startswith("by (job, sink") for kept in innermost)
    assert re.findall(r"\b(?:sum|max|min|avg)\(", query) == []


def test_the_dashboard_tells_a_sink_that_is_well_from_one_that_is_not(tmp_path: Path) -> None:
    """Both are in one job, with two workers each, and read the same topic."""
    series = {
        'calving_leader{job="c", sink="orders", instance="a"}': "1+0x30",
        'calving_leader{job="c", sink="orders", instance="b"}': "0+0x30",
        'calving_leader{job="c", sink="payments", instance="a"}': "0+0x30",
        'calving_leader{job="c", sink="payments", instance="b"}': "0+0x30",
        'calving_info{job="c", sink="orders", instance="a"}': "1+0x30",
        'calving_info{job="c", sink="ended", instance="a"}': "1+0x10 stale",
        'calving_degraded{job="c", sink="orders", instance="a", cause="table-failing"}': "0+0x30",
        'calving_degraded{job="c", sink="payments", instance="a", cause="table-failing"}': "2+0x30",
        'calving_degraded{job="c", sink="payments", instance="b", cause="table-failing"}': "2+0x30",
        'calving_commit_lag_records{job="c", sink="orders", instance="a", topic="t", partition="0"}': "3+0x30",
        'calving_commit_lag_records{job="c", sink="payments", instance="a", topic="t", partition="0"}': "40+0x30",
        'calving_commit_lag_records{job="c", sink="payments", instance="b", topic="t", partition="1"}': "2+0x30",
        'calving_table_last_commit_timestamp_seconds{job="c", sink="orders", table="db.t"}': "1740+0x30",
        'calving_table_last_commit_timestamp_seconds{job="c", sink="payments", table="db.t"}': "600+0x30",
    }
    shown = {
        "Sinks that are DEGRADED": {"{}": 1},
        "Sinks without one leader": {"{}": 2},
        "Most lag to commit": {'{job="c", sink="payments"}': 42},
        "Oldest commit": {'{job="c", sink="payments", table="db.t"}': 1200},
        "Time since the last commit by table": {
            '{job="c", sink="payments", table="db.t"}': 1200,
            '{job="c", sink="orders", table="db.t"}': 60,
        },
    }
    queries = {panel["title"]: panel["targets"][0]["expr"] for panel in DASHBOARD["panels"]}
    cases = [
        {
            "expr": queries[title].replace("$job", ".+").replace("$sink", ".+"),
            "eval_time": "30m",
            "exp_samples": [{"labels": labels, "value": number} for labels, number in samples.items()],
        }
        for title, samples in shown.items()
    ]
    inputs = [{"series": name, "values": numbers} for name, numbers in series.items()]
    tests = [{"interval": "1m", "input_series": inputs, "promql_expr_test": cases}]
    (tmp_path / "dashboard.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "dashboard.yaml")


def test_there_is_an_alert_for_each_way_in_which_a_sink_can_stop_silently() -> None:
    asked = {name for where, query, _ in EXPRESSIONS if "alert" in where for name in metrics_of(query)}
    assert asked >= {
        "calving_table_last_commit_timestamp_seconds",
        "calving_degraded",
        "calving_table_valid_through_timestamp_seconds",
        "calving_leader",
        "calving_info",
        "calving_records_dead_lettered_total",
        "calving_publications_total",
    }


def promtool(*arguments: object) -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("needs promtool")
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [re.sub(r"\$__rate_interval", "5m", query) for where, query, _ in EXPRESSIONS if "dashboard" in where]
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", tmp_path / "rules.yaml")


def test_alerts_fire_when_they_should_and_not_else() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yaml")


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load((DEPLOY / "alerts_test.yaml").read_text())["tests"][0]["alert_rule_test"]
    fired = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in RULES["groups"][0]["rules"]}


def manifests(name: str = "kubernetes.yaml") -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def manifest(kind: str, name: str = "kubernetes.yaml") -> dict[str, Any]:
    (found,) = (m for m in manifests(name) if m["kind"] == kind)
    return found


def spark_sink(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any], Mapping[str, str]]:
    """The pod of the sink on Spark, the container of its worker, and its settings of Spark."""
    pod = manifest("Deployment", SPARK)["spec"]["template"]
    (worker,) = pod["spec"]["containers"]
    for name in ("CALVING_TOKEN", "CATALOG_TOKEN", *(each["name"] for each in worker["env"])):
        monkeypatch.setenv(name, f"the-value-of-{name}")
    spark = parse(flat(tomllib.loads(manifest("ConfigMap", SPARK)["data"]["sink.toml"]))).spark
    return pod, worker, spark


@pytest.mark.parametrize("name", ["kubernetes.yaml", SPARK])
def test_kubernetes_takes_the_manifests(name: str) -> None:
    for each in manifests(name):
        if each["kind"] != "PodMonitor":  # the operator's own kind
            kubernetes_validate.validate(each, "1.30", strict=True)


def test_the_sink_whose_tasks_have_pods_of_their_own_is_valid_and_starts_them_as_its_service_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod, worker, spark = spark_sink(monkeypatch)
    assert spark["spark.driver.host"] == "the-value-of-POD_IP"
    assert spark["spark.kubernetes.driver.pod.name"] == "the-value-of-POD_NAME"
    assert spark["spark.kubernetes.container.image"] == worker["image"]
    account = manifest("ServiceAccount", SPARK)["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account
    assert [each["name"] for each in manifest("RoleBinding", SPARK)["subjects"]] == [account]
    assert manifest("RoleBinding", SPARK)["roleRef"]["name"] == manifest("Role", SPARK)["metadata"]["name"]


def test_the_sink_of_the_manifests_is_valid_and_serves_what_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVING_TOKEN", "0123456789abcdef")
    monkeypatch.setenv("CATALOG_TOKEN", "x")
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    sink = parse(flat(tomllib.loads(manifest("ConfigMap")["data"]["sink.toml"])))
    pod = manifest("Deployment")["spec"]["template"]
    (worker,) = pod["spec"]["containers"]
    (port,) = worker["ports"]
    assert sink.keys.http_port == port["containerPort"]
    assert sink.keys.http_advertised == f"http://10.0.0.7:{port['containerPort']}/"
    assert [each["name"] for each in worker["env"]] == ["POD_IP"]
    probes = [worker[f"{which}Probe"]["httpGet"] for which in ("liveness", "readiness")]
    assert probes == [{"path": "/healthz", "port": port["name"]}, {"path": "/readyz", "port": port["name"]}]
    (scraped,) = manifest("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (scraped["port"], scraped["path"]) == (port["name"], "/metrics")
    assert pod["spec"]["terminationGracePeriodSeconds"] > 2 * sink.keys.stop_timeout_ms / 1000


def test_all_manifests_are_about_the_same_pods() -> None:
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [manifest(k)["spec"]["selector"] for k in ("Deployment", "PodDisruptionBudget", "PodMonitor")]
    assert all(each == {"matchLabels": labels} for each in selectors)
    assert manifest("NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": labels}


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "calving@orders.service"
    unit.write_text(
        (DEPLOY / "calving@.service").read_text().replace("/opt/calving/bin/calving", shutil.which("true") or "")
    )
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_rates_the_unit_as_little_exposed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "calving@orders.service"
    unit.write_text((DEPLOY / "calving@.service").read_text())
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=30", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-200:]


def test_spark_on_kubernetes_demands_a_secret_and_lets_only_its_own_pods_in(monkeypatch: pytest.MonkeyPatch) -> None:
    pod, worker, spark = spark_sink(monkeypatch)
    assert spark["spark.authenticate"] == spark["spark.network.crypto.enabled"] == "true"
    assert spark["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    (mounted,) = (m["mountPath"] for m in worker["volumeMounts"] if m["name"] == "spark-auth")
    assert spark["spark.authenticate.secret.file"] == f"{mounted}/secret"
    assert spark["spark.kubernetes.executor.secrets.calving-spark-auth"] == mounted
    policies = {m["metadata"]["name"]: m["spec"] for m in manifests(SPARK) if m["kind"] == "NetworkPolicy"}
    driver, executors = policies["calving-spark"], policies["calving-spark-executor"]
    assert driver["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
    label = {"app": spark["spark.kubernetes.executor.label.app"]}
    assert executors["podSelector"]["matchLabels"] == label
    (inside,) = (rule for rule in driver["ingress"] if rule["from"] == [{"podSelector": {"matchLabels": label}}])
    ports = {spark["spark.driver.port"], spark["spark.driver.blockManager.port"]}
    assert {str(each["port"]) for each in inside["ports"]} == ports


@pytest.mark.parametrize("name", ["kubernetes.yaml", SPARK])
def test_a_pod_cannot_fill_the_disk_of_its_node(name: str) -> None:
    pod = manifest("Deployment", name)["spec"]["template"]["spec"]
    assert "ephemeral-storage" in pod["containers"][0]["resources"]["limits"]
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)


def test_the_image_is_made_of_what_is_there_and_runs_a_command_that_there_is() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    for source in re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE):
        assert (DEPLOY.parent / source).exists()
    for package in re.findall(r"/packages/([\w-]+)", text):
        assert (DEPLOY.parent / "packages" / package / "pyproject.toml").exists()
    words = [re.split(r"\s", line)[0] for line in re.sub(r"\\\n", " ", text).splitlines() if line and line[0] != "#"]
    assert set(words) <= {"FROM", "ARG", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert json.loads(text.partition("\nCMD ")[2])[0] == "run"
    assert len(set(re.findall(r"python:?(3\.\d+)", text))) == 1


def test_the_page_about_degraded_names_every_cause() -> None:
    page = (DEPLOY.parent / "docs" / "reference" / "http.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == [cause.value for cause in Cause]


def test_every_alert_leads_to_a_section_for_those_who_are_on_call() -> None:
    links = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in RULES["groups"][0]["rules"]}
    assert links.pop("CalvingDegraded") == section("{{ $labels.cause }}")
    assert set(links.values()) <= {section(reason) for reason in REMEDIES}
