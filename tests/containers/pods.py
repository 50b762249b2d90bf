#!/usr/bin/env python3
"""pods.py check FILE CONTAINERFILE | pod FILE ROOT NAME [COMMAND...]

check: says where daemonset.yaml is not what its comments, the Containerfile and, where Python's
package "kubernetes" is there, Kubernetes's own definitions say.  pod: prints one of its pods by
name as JSON for `podman kube play`, with the node's directories below ROOT, and without what only
a node with a GPU has; a COMMAND replaces the pod's own, and finds ROOT at /node.
"""

import json
import os
import re
import sys

import yaml


def pods(path):
    """Name -> pod; that of a DaemonSet's template has the DaemonSet's name."""
    found = {}
    for thing in yaml.safe_load_all(open(path)):
        name = thing["metadata"]["name"]
        found[name] = thing["spec"]["template"] if thing["kind"] == "DaemonSet" else thing
    return found


def by_definition(path):
    """What Kubernetes's own definitions say of fields that they do not have, lack, or spell."""
    try:
        from kubernetes.client import models
    except ImportError:
        return []
    wrong = []
    for thing in yaml.safe_load_all(open(path)):
        try:
            getattr(models, "V1" + thing["kind"]).model_validate(thing)
        except ValueError as error:
            wrong.append(str(error))
    return wrong


def check(path, containerfile):
    text = open(containerfile).read()
    gid = int(re.search(r"groupadd --gid (\d+)", text).group(1))
    uid = int(re.search(r"useradd --uid (\d+)", text).group(1))
    socket = re.search(r"KILN_SOCKET=(\S+)", text).group(1)
    image = re.search(r"-t (kiln:\S+)", text).group(1)
    cmake = open(os.path.join(os.path.dirname(path), "..", "..", "CMakeLists.txt")).read()
    version = re.search(r"project\(kiln VERSION ([\d.]+)", cmake).group(1)
    wrong = by_definition(path)

    def want(condition, sentence):
        if not condition:
            wrong.append(sentence)

    found = pods(path)
    want(image == "kiln:" + version, "the Containerfile names %s of release %s" % (image, version))
    want("KILN_ALLOW_GID=%d" % gid in text, "the group %d is not let in" % gid)
    directories = set()
    for name, pod in found.items():
        spec = pod["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for share in ("hostIPC", "hostPID", "hostNetwork"):
            want(not spec.get(share), "%s has %s" % (name, share))
        for container in spec.get("initContainers", []) + spec["containers"]:
            want(container["image"] == image, "%s: image %s" % (name, container["image"]))
            mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
            for mount in mounts.values():
                want(mount["name"] in volumes, "%s: no volume %s" % (name, mount["name"]))
            mount = mounts.get(os.path.dirname(socket))
            want(mount, "%s does not mount the socket's directory" % name)
            if mount:
                directories.add(volumes[mount["name"]]["hostPath"]["path"])
    want(len(directories) == 1, "pods meet in several directories: %s" % directories)
    daemon = found["kilnd"]["spec"]["containers"][0]
    secure = daemon["securityContext"]
    want(secure["runAsUser"] == uid and secure["runAsGroup"] == gid, "ids of the daemon")
    want(secure["readOnlyRootFilesystem"] and not secure["allowPrivilegeEscalation"] and
         secure["capabilities"] == {"drop": ["ALL"]}, "the daemon may do more than it needs")
    client = found["kiln-client"]["spec"]
    want(gid in client["securityContext"]["supplementalGroups"], "the client lacks the group")
    want({"name": "KILN_SOCKET", "value": socket} in client["containers"][0]["env"],
         "the client looks elsewhere")
    return wrong


def pod(path, root, name, *command):
    found = pods(path)[name]
    found.update(apiVersion="v1", kind="Pod")
    # podman would remove a container that has done its part, at times before it has ended.
    found["metadata"] = {"name": name,
                         "annotations": {"io.podman.annotations.init.container.type": "always"}}
    spec = found["spec"]
    # These ask for a node with a GPU.
    spec.pop("runtimeClassName", None)
    spec.pop("nodeSelector", None)
    for volume in spec["volumes"]:
        if "hostPath" in volume:
            volume["hostPath"]["path"] = root + volume["hostPath"]["path"]
            volume["hostPath"]["type"] = "DirectoryOrCreate"
    if command:
        spec["containers"][0]["command"] = list(command)
        spec["containers"][0]["volumeMounts"].append({"name": "node", "mountPath": "/node"})
        spec["volumes"].append({"name": "node", "hostPath": {"path": root}})
    print(json.dumps(found, indent=1))
    return []


if __name__ == "__main__":
    findings = {"check": check, "pod": pod}[sys.argv[1]](*sys.argv[2:])
    print("\n".join(findings), end="\n" if findings else "")
    sys.exit(bool(findings))
