"""Checks one rendering of the chart beyond its schemas. Usage: check_chart.py RENDERED

Budgets, autoscalers, Services and policies must select the pods they are meant for, and every rendering must allow an eviction.
"""

import sys

import yaml

documents = [document for document in yaml.safe_load_all(open(sys.argv[1])) if document]
faults = []


def of_kind(kind):
    return [document for document in documents if document["kind"] == kind]


def name(document):
    return f"{document['kind']} {document['metadata']['name']}"


deployments = {document["metadata"]["name"]: document for document in of_kind("Deployment")}
pods = {key: value["spec"]["template"]["metadata"]["labels"] for key, value in deployments.items()}


def selected(labels):
    return [key for key, own in pods.items() if labels.items() <= own.items()]


for key, deployment in deployments.items():
    if selected(deployment["spec"]["selector"]["matchLabels"]) != [key]:
        faults.append(f"{name(deployment)} does not select exactly its own pods")
    pod = deployment["spec"]["template"]["spec"]
    for container in pod["containers"]:
        if container["readinessProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"]:
            faults.append(f"{name(deployment)}: liveness and readiness ask the same")

targets = {document["spec"]["scaleTargetRef"]["name"]: document for document in of_kind("HorizontalPodAutoscaler")}
for target, document in targets.items():
    if target not in deployments:
        faults.append(f"{name(document)} scales {target}, which is not there")
    elif "replicas" in deployments[target]["spec"]:
        faults.append(f"{name(document)} and its Deployment both set the number of pods")

for budget in of_kind("PodDisruptionBudget"):
    matched = selected(budget["spec"]["selector"]["matchLabels"])
    if len(matched) != 1:
        faults.append(f"{name(budget)} selects {matched}")
        continue
    scaled = targets.get(matched[0])
    least = scaled["spec"]["minReplicas"] if scaled else deployments[matched[0]]["spec"]["replicas"]
    allowed = budget["spec"].get("maxUnavailable", 0) or least - budget["spec"].get("minAvailable", least)
    if allowed < 1 or least < 2:
        faults.append(f"{name(budget)} allows no eviction at {least} pods, or is set on a single one")

for service in of_kind("Service"):
    if len(selected(service["spec"]["selector"])) != 1:
        faults.append(f"{name(service)} selects {selected(service['spec']['selector'])}")
for policy in of_kind("NetworkPolicy"):
    if not selected(policy["spec"]["podSelector"]["matchLabels"]):
        faults.append(f"{name(policy)} selects no pod")

for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
