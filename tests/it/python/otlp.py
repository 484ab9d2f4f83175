"""Decodes an OTLP request for metrics, in JSON, by OpenTelemetry's own protocol buffers. Prints its points."""

import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


def attributes(them):
    return {it.key: it.value.string_value for it in them}


request = json_format.Parse(sys.stdin.read(), ExportMetricsServiceRequest())
(of,) = request.resource_metrics
(scope,) = of.scope_metrics
points = []
for metric in scope.metrics:
    kind = metric.WhichOneof("data")
    assert kind in ("gauge", "sum")
    for point in getattr(metric, kind).data_points:
        points.append(
            {
                "name": metric.name,
                "unit": metric.unit,
                "monotonic": kind == "sum" and metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2,
                "attributes": attributes(point.attributes),
                "nano": point.time_unix_nano,
                "value": point.as_double,
            }
        )
print(json.dumps({"resource": attributes(of.resource.attributes), "points": points}))
