import pytest

from tollhouse.observability.metrics import Metrics


def lines(metrics: Metrics) -> list[str]:
    return metrics.render().decode().splitlines()


def test_everything_starts_at_zero() -> None:
    rendered = lines(Metrics())
    assert "tollhouse_generations_in_flight 0.0" in rendered
    assert "tollhouse_upstream_ambiguous_sends_total 0.0" in rendered


def test_generations_are_counted_by_status() -> None:
    metrics = Metrics()
    for status in (200, 200, 502):
        metrics.count_generation(status)
    rendered = lines(metrics)
    assert 'tollhouse_generations_total{status="200"} 2.0' in rendered
    assert 'tollhouse_generations_total{status="502"} 1.0' in rendered


def test_refusals_are_counted_by_status() -> None:
    metrics = Metrics()
    metrics.count_refusal(401)
    assert 'tollhouse_http_refusals_total{status="401"} 1.0' in lines(metrics)


def test_verdicts_are_counted_by_guardrail() -> None:
    metrics = Metrics()
    for verdict in ("allowed", "allowed", "failed"):
        metrics.count_verdict("privacy", verdict)
    name = "tollhouse_guardrail_verdicts_total"
    rendered = lines(metrics)
    assert f'{name}{{guardrail="privacy",verdict="allowed"}} 2.0' in rendered
    assert f'{name}{{guardrail="privacy",verdict="failed"}} 1.0' in rendered


def test_what_runs_goes_up_and_down() -> None:
    metrics = Metrics()
    metrics.in_flight.inc()
    metrics.in_flight.inc()
    metrics.in_flight.dec()
    assert "tollhouse_generations_in_flight 1.0" in lines(metrics)


def test_limits_of_sandboxes_are_enforced_or_not() -> None:
    metrics = Metrics()
    metrics.set_limit("cpus", enforced=False)
    metrics.set_limit("disk_bytes", enforced=True)
    rendered = lines(metrics)
    assert 'tollhouse_intern_limit_enforced{limit="cpus"} 0.0' in rendered
    assert 'tollhouse_intern_limit_enforced{limit="disk_bytes"} 1.0' in rendered


def test_every_metric_is_described() -> None:
    metrics = Metrics()
    metrics.count_generation(200)
    metrics.count_refusal(400)
    metrics.count_verdict("privacy", "allowed")
    rendered = lines(metrics)
    names = {line.split()[2] for line in rendered if line.startswith("# TYPE")}
    assert names
    for name in names:
        [described] = [line for line in rendered if line.startswith(f"# HELP {name} ")]
        assert len(described.split()) > 3


def test_two_gateways_in_one_process_count_apart() -> None:
    one, two = Metrics(), Metrics()
    one.count_generation(200)
    assert one.registry.get_sample_value("tollhouse_generations_total", {"status": "200"}) == 1
    assert two.registry.get_sample_value("tollhouse_generations_total", {"status": "200"}) is None


@pytest.mark.parametrize("count", [1, 100])
def test_the_output_does_not_grow_with_the_requests(count: int) -> None:
    metrics = Metrics()
    for _ in range(count):
        metrics.count_generation(200)
        metrics.count_refusal(401)
    assert len(lines(metrics)) == len(lines(metrics))
    assert len([line for line in lines(metrics) if "status=" in line and "_total" in line]) == 2
